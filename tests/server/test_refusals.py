"""What SGLang refuses while it resolves its arguments, and what stands on the other side of each line."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from tests.server.asking import FP8, MXFP4, NVFP4, PACKED, model, server

_DP = {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}
_A2A = {**_DP, "moe_a2a_backend": "flashinfer"}
_DEEPEP = {"tp_size": 8, "moe_a2a_backend": "deepep"}
_CUTLASS = {"moe_runner_backend": "flashinfer_cutlass"}
_TRTLLM = {"moe_runner_backend": "flashinfer_trtllm"}
_ROUTED = {"moe_runner_backend": "flashinfer_trtllm_routed"}
_CUTEDSL = {"moe_runner_backend": "flashinfer_cutedsl"}
_ONLINE = {"quantization": "nvfp4_online"}


def _mixed(family: str) -> Checkpoint:
    layers = {"layers.0.experts.0": {"quant_algo": "NVFP4"}}
    section = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    return model(family, section)


REFUSED: tuple[tuple[Any, int, str, dict[str, Any], str], ...] = (
    (model("deepseek", FP8), 23, "B200", _CUTLASS, "flashinfer_cutlass does not take quantization fp8"),
    (model("glm4", PACKED), 17, "B200", _ROUTED, "does not take quantization compressed-tensors"),
    (model("deepseek"), 23, "B200", _CUTEDSL, "flashinfer_cutedsl does not take quantization None"),
    (_mixed("deepseek"), 15, "B200", _CUTEDSL, "does not take quantization modelopt_mixed"),
    (_mixed("deepseek"), 15, "B200", _ROUTED, "does not take quantization modelopt_mixed"),
    ("qwen3_moe", 23, "H200", {**_TRTLLM, "quantization": "w8a8_int8"}, "quantization w8a8_int8"),
    ("qwen3_moe", 22, "H200", {**_A2A, **_CUTLASS, "chunked_prefill_size": -1}, "needs chunked prefill"),
    ("qwen3_moe", 23, "H200", {**_CUTLASS, "tp_size": 8, "ep_size": 2}, "--ep 2: MoE backend"),
    ("qwen3_moe", 23, "H200", {**_CUTLASS, **_DEEPEP, "ep_size": 2}, "--ep 2: MoE backend"),
    (
        model("deepseek", NVFP4),
        12,
        "B200",
        {**_A2A, **_CUTEDSL},
        "flashinfer_cutedsl does not know all-to-all",
    ),
    (
        model("deepseek", NVFP4),
        23,
        "B200",
        {**_CUTEDSL, "moe_a2a_backend": "mooncake"},
        "mooncake",
    ),
    (model("deepseek", NVFP4), 17, "B200", {**_CUTEDSL, **_DEEPEP, "deepep_mode": "normal"}, "deepep-mode"),
    (
        "qwen3_moe",
        23,
        "H200",
        {"moe_runner_backend": "cutlass", "quantization": "fp8", "tp_size": 2, "ep_size": 2},
        "cutlass has no expert parallelism with fp8",
    ),
    (
        model("gpt_oss", MXFP4),
        23,
        "H200",
        {"moe_runner_backend": "triton_kernel", "tp_size": 2, "ep_size": 2},
        "triton_kernel has no expert parallelism",
    ),
    ("qwen3_moe", 14, "H200", _ONLINE, "nvfp4_online needs sm100"),
    (
        "qwen3_moe",
        23,
        "B200",
        {**_ONLINE, "moe_runner_backend": "triton"},
        "MoE backend triton",
    ),
    ("qwen3_moe", 17, "B200", {**_ONLINE, **_CUTEDSL}, "does not run on MoE backend flashinfer_cutedsl"),
    (
        "qwen3_moe",
        13,
        "H200",
        {"tp_size": 4, "moe_a2a_backend": "flashinfer", **_CUTLASS},
        "attention-DP groups",
    ),
    ("qwen3_moe", 23, "H200", {**_A2A, "dp_size": 2, **_CUTLASS}, "2 of 4"),
    ("qwen3_moe", 23, "H200", _A2A, "does not work with MoE backend auto"),
    ("qwen3_moe", 18, "B200", {**_A2A, **_TRTLLM}, "does not work with MoE backend flashinfer_trtllm"),
    ("qwen3_moe", 14, "B200", {**_A2A, **_ROUTED}, "does not work with MoE backend flashinfer_trtllm_routed"),
    ("qwen3_moe", 18, "H200", {**_A2A, "moe_runner_backend": "deep_gemm"}, "with MoE backend deep_gemm"),
    ("qwen3_moe", 20, "B200", {"flashinfer_a2a_dispatch_type": "bf16"}, "--moe-a2a-backend flashinfer only"),
    (
        "qwen3_moe",
        20,
        "B200",
        {**_A2A, **_ROUTED, "flashinfer_a2a_dispatch_type": "mxfp8"},
        "mxfp8 needs --quantization mxfp8",
    ),
    (
        "qwen3_moe",
        20,
        "B200",
        {**_A2A, **_ROUTED, "flashinfer_a2a_dispatch_type": "nvfp4"},
        "needs nvfp4 experts",
    ),
    ("deepseek", 23, "H200", {"tp_size": 8, "moe_a2a_backend": "deepep_v2", **_CUTLASS}, "deepep_v2"),
    ("deepseek", 23, "H200", {"tp_size": 8, "moe_a2a_backend": "pplx", **_CUTLASS}, "--moe-a2a-backend pplx"),
    ("deepseek", 23, "B200", {"tp_size": 4, "moe_a2a_backend": "flashinfer_megamoe"}, "--attn-dp-size 4"),
    ("deepseek", 23, "B200", {"moe_a2a_backend": "flashinfer_megamoe"}, "--attn-dp-size 1"),
    (
        "deepseek",
        23,
        "B200",
        {"tp_size": 4, "attn_dp_size": 4, "moe_a2a_backend": "flashinfer_megamoe", **_TRTLLM},
        "does not work with MoE backend flashinfer_trtllm",
    ),
    (
        "deepseek",
        23,
        "H200",
        {"tp_size": 4, "attn_dp_size": 4, "moe_a2a_backend": "flashinfer_megamoe"},
        "needs sm100",
    ),
    ("qwen3", 16, "H200", {"flashinfer_autotune_skip_ops": ("fp4_gemm",)}, "0.5.16 has no --flashinfer"),
    ("qwen3", 23, "H200", {**_DP, "dp_size": 3}, "--dp 3 does not divide --tp 4"),
    ("qwen3", 22, "H200", {"tp_size": 4, "dp_size": 2, "attn_dp_size": 4}, "no replicas of attention groups"),
    ("qwen3", 22, "H200", {"tp_size": 4, "attn_dp_size": 0}, "--attn-dp-size is 0"),
    ("qwen3", 22, "H200", {"tp_size": 4, "dp_size": 2, "enable_dp_lm_head": True}, "needs DP attention"),
)


@pytest.mark.parametrize(("checkpoint", "version", "gpu", "asked", "message"), REFUSED)
def test_refused(checkpoint: Any, version: int, gpu: str, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server(checkpoint, version, gpu, **asked)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("checkpoint", "version", "gpu", "asked"),
    [
        (_mixed("deepseek"), 16, "B200", _CUTEDSL),
        (_mixed("deepseek"), 16, "B200", _ROUTED),
        ("qwen3_moe", 23, "H200", {**_CUTLASS, "tp_size": 8, "ep_size": 8}),
        (model("deepseek", NVFP4), 13, "B200", {**_A2A, **_CUTEDSL, "max_prefill_tokens": 4096}),
        (model("deepseek", NVFP4), 16, "B200", {**_CUTEDSL, **_DEEPEP, "deepep_mode": "normal"}),
        ("qwen3_moe", 12, "H200", {"tp_size": 4, "moe_a2a_backend": "flashinfer", **_CUTLASS}),
        ("qwen3_moe", 18, "B200", {**_ONLINE, **_CUTEDSL}),
        ("qwen3_moe", 19, "B200", {**_A2A, **_TRTLLM}),
        ("qwen3_moe", 21, "H200", {**_A2A, **_CUTLASS, "chunked_prefill_size": -1}),
        (
            "qwen3_moe",
            22,
            "H200",
            {**_A2A, **_CUTLASS, "chunked_prefill_size": -1, "disaggregation_mode": "decode"},
        ),
        ("qwen3_moe", 15, "B200", {**_A2A, **_ROUTED}),
        ("qwen3_moe", 19, "H200", {**_A2A, "moe_runner_backend": "deep_gemm"}),
        ("qwen3_moe", 19, "B200", {"flashinfer_a2a_dispatch_type": "bf16"}),
        ("qwen3_moe", 20, "B200", {"flashinfer_a2a_dispatch_type": "auto"}),
        ("qwen3", 22, "H200", {"tp_size": 4, "attn_dp_size": 4, "enable_dp_lm_head": True}),
        ("qwen3", 22, "H200", {"tp_size": 4, "enable_dp_lm_head": True}),
        ("qwen3", 17, "H200", {"flashinfer_autotune_skip_ops": ("fp4_gemm",)}),
    ],
)
def test_planned(checkpoint: Any, version: int, gpu: str, asked: dict[str, Any]) -> None:
    assert server(checkpoint, version, gpu, **asked).key


_TREE = {"speculative_num_steps": 3, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8}
_EAGLE = {"speculative_algorithm": "EAGLE3"}


@pytest.mark.parametrize(
    ("version", "gpu", "asked", "message"),
    [
        (23, "H200", {**_EAGLE, "speculative_num_steps": 3}, "needs --speculative-eagle-topk"),
        (23, "H200", {**_EAGLE, "speculative_eagle_topk": 1}, "need --speculative-num-steps"),
        (23, "H200", {**_EAGLE, "speculative_num_draft_tokens": 4}, "need --speculative-num-steps"),
        (23, "H200", {"speculative_algorithm": "MEDUSA"}, "MEDUSA is not supported"),
        (23, "B200", {**_EAGLE, **_TREE, "attention_backend": "trtllm_mha"}, "trtllm_mha takes 1 only"),
        (
            12,
            "H200",
            {**_EAGLE, **_TREE, "page_size": 32, "attention_backend": "triton"},
            "pages of 32 tokens",
        ),
        (23, "H200", {**_DP, "speculative_algorithm": "STANDALONE"}, "does not run with DP attention"),
        (23, "H200", {**_DP, "speculative_algorithm": "NGRAM"}, "does not run with DP attention"),
        (23, "H200", {"speculative_algorithm": "NGRAM", "page_size": 16}, "NGRAM with pages of 16"),
        (20, "H200", {"speculative_algorithm": "NGRAM", "speculative_ngram_max_bfs_breadth": 0}, "is 0"),
        (23, "H200", {"speculative_algorithm": "DFLASH", "pp_size": 2}, "--pp 2: DFLASH"),
        (23, "H200", {**_DP, "speculative_algorithm": "DFLASH"}, "DFLASH does not run with DP attention"),
        (
            22,
            "H200",
            {**_DP, "speculative_algorithm": "DFLASH", "enable_dp_lm_head": True},
            "DFLASH does not run with DP attention",
        ),
        (
            16,
            "H200",
            {
                "speculative_algorithm": "DSPARK",
                "speculative_dspark_block_size": 5,
                "speculative_num_draft_tokens": 5,
            },
            "the draft takes 6",
        ),
    ],
)
def test_speculation_is_refused(version: int, gpu: str, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server("llama", version, gpu, draft=model("eagle3"), **asked)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("version", "asked"),
    [
        (13, {**_EAGLE, **_TREE, "page_size": 32, "attention_backend": "triton"}),
        (12, {**_EAGLE, **_TREE, "page_size": 1, "attention_backend": "triton"}),
        (12, {**_EAGLE, **_TREE, "page_size": 32, "attention_backend": "flashinfer"}),
        (23, {"speculative_algorithm": "NGRAM", "page_size": 16, "speculative_ngram_max_bfs_breadth": 1}),
        (23, {"speculative_algorithm": "NGRAM", "page_size": 16, "attention_backend": "flashinfer"}),
        (23, {**_DP, "speculative_algorithm": "DFLASH", "enable_dp_lm_head": True}),
    ],
)
def test_speculation_is_planned(version: int, asked: dict[str, Any]) -> None:
    assert server("llama", version, "H200", draft=model("eagle3"), **asked).speculative is not None


@pytest.mark.parametrize("algorithm", ["DFLASH", "DSPARK"])
def test_an_algorithm_that_needs_a_draft(algorithm: str) -> None:
    with pytest.raises(ConfigError, match=f"{algorithm} needs a draft"):
        server("llama", speculative_algorithm=algorithm)

"""What unset flags of a server become, as the newest SGLang answers: by family, weights and GPU."""

from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.choices.graphs import decode_graph_sizes, prefill_graph_sizes
from runtime.server.errors import ConfigError
from tests.server.asking import FP8, MODELOPT_FP8, MXFP4, NVFP4, model, server

TRTLLM, CUTLASS = "flashinfer_trtllm", "flashinfer_cutlass"
DP = {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}


@pytest.mark.parametrize(
    ("checkpoint", "gpu", "backend"),
    [
        (model("qwen3_moe"), "GB300", TRTLLM),
        (model("qwen3_moe"), "H200", "auto"),
        (model("qwen3_moe"), "RTX PRO 6000", "auto"),
        (model("qwen3_moe", FP8), "B200", TRTLLM),
        (model("qwen3_moe", NVFP4), "B200", TRTLLM),
        (model("qwen3_moe", MODELOPT_FP8), "B200", "auto"),
        (model("qwen3_moe", NVFP4), "RTX PRO 6000", "auto"),
        (model("qwen3"), "B200", "auto"),
        (model("deepseek", FP8), "B200", TRTLLM),
        (model("glm4"), "B200", TRTLLM),
        (model("minimax", NVFP4), "B200", "flashinfer_trtllm_routed"),
        (model("minimax", FP8), "B200", "auto"),
        (model("nemotron"), "H200", CUTLASS),
        (model("nemotron", MODELOPT_FP8), "B200", TRTLLM),
        (model("gpt_oss", MXFP4), "B200", "flashinfer_mxfp4"),
        (model("gpt_oss", MXFP4), "H200", "triton_kernel"),
        (model("gpt_oss"), "B200", "triton_kernel"),
    ],
)
def test_an_unset_moe_backend_is_sglangs(checkpoint: Checkpoint, gpu: str, backend: str) -> None:
    assert server(checkpoint, gpu).runtime.kernels.moe == backend


@pytest.mark.parametrize(
    ("checkpoint", "gpu", "asked", "tunes"),
    [
        *(
            (model("qwen3_moe"), "H200", {"moe_runner_backend": backend}, tunes)
            for backend, tunes in ((TRTLLM, True), (CUTLASS, True), ("triton", False), ("auto", False))
        ),
        (model("qwen3_moe"), "L40S", {"moe_runner_backend": CUTLASS}, False),
        (model("llama"), "B200", {}, False),
        (model("qwen3", FP8), "B200", {}, False),
        (model("llama", NVFP4), "B200", {}, True),
        (model("llama", NVFP4), "H200", {}, False),
        (model("llama", NVFP4), "B200", {"disable_flashinfer_autotune": True}, False),
        (model("llama", MODELOPT_FP8), "H200", {}, True),
        (model("llama", MODELOPT_FP8), "L40S", {}, False),
    ],
)
def test_servers_tune_as_sglang(checkpoint: Checkpoint, gpu: str, asked: dict[str, Any], tunes: bool) -> None:
    assert server(checkpoint, gpu, **asked).tuning.tunes is tunes


@pytest.mark.parametrize(
    ("checkpoint", "gpu", "argument", "own"),
    [
        (model("qwen3_moe", FP8), "H200", None, "fp8"),
        (model("qwen3_moe", FP8), "B200", "fp8", "fp8"),
        (model("deepseek", FP8), "B200", "fp8", "fp8"),
        (model("qwen3_moe", NVFP4), "B200", "modelopt_fp4", "modelopt_fp4"),
        (model("nemotron"), "B200", None, None),
        (model("gpt_oss", MXFP4), "B200", None, "mxfp4"),
    ],
)
def test_the_argument_and_the_weights_quantization_may_differ(
    checkpoint: Checkpoint, gpu: str, argument: str | None, own: str | None
) -> None:
    found = server(checkpoint, gpu)
    assert (found.quantization, found.model_quantization) == (argument, own)


@pytest.mark.parametrize(
    ("declared", "asked", "dtype"),
    [
        ("bfloat16", "auto", "bfloat16"),
        ("float32", "auto", "float16"),
        (None, "auto", "float16"),
        ("bfloat16", "half", "float16"),
    ],
)
def test_an_unset_dtype_follows_the_checkpoint(declared: str | None, asked: str, dtype: str) -> None:
    assert server(model("qwen3", dtype=declared), dtype=asked).runtime.dtype == dtype


def test_gemma_of_float32_runs_in_bfloat16() -> None:
    assert server(model("gemma", dtype="float32")).runtime.dtype == "bfloat16"


@pytest.mark.parametrize(
    "section",
    [
        {"quant_method": "awq", "bits": 4},
        {"quant_method": "hqq"},
        {"bits": 4},
        "fp8",
        [1],
        {"quant_method": 8},
    ],
)
def test_other_quantization_is_refused_by_name(section: Any) -> None:
    with pytest.raises(ConfigError, match="quant"):
        server(model("qwen3", quantization_config=section)).model_quantization  # noqa: B018


def test_decode_graphs_have_sglangs_sizes() -> None:
    assert decode_graph_sizes(21) == (1, 2, 4, 8, 12, 16, 21)
    assert decode_graph_sizes(300)[-4:] == (256, 272, 288, 300)
    assert len(decode_graph_sizes(256)) == 36 and len(decode_graph_sizes(512)) == 52
    assert decode_graph_sizes(12, speculative=True) == (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)


def test_prefill_graphs_have_sglangs_sizes() -> None:
    assert prefill_graph_sizes(48) == (4, 8, 12, 16, 20, 24, 28, 32, 48)
    assert prefill_graph_sizes(300)[-3:] == (240, 256, 288), "the largest is not added"
    assert len(prefill_graph_sizes(8192)) == 58 and prefill_graph_sizes(-1) == ()


@pytest.mark.parametrize(
    ("asked", "largest"),
    [
        ({}, 8192),
        (DP, 2048),
        ({"pp_size": 2}, 0),
        ({"context_length": 5000}, 8192),
        ({"max_total_tokens": 1500}, 1280),
        ({"disable_cuda_graph": True}, 0),
        ({"disable_prefill_cuda_graph": True}, 0),
        ({"chunked_prefill_size": -1}, 0),
    ],
)
def test_the_largest_prefill_graph_follows_the_flags(asked: dict[str, Any], largest: int) -> None:
    assert max(server("qwen3_moe", "H200", **asked).runtime.graphs.prefill, default=0) == largest


@pytest.mark.parametrize(
    ("asked", "largest"),
    [
        ({}, 256),
        ({"tp_size": 4}, 512),
        ({"max_running_requests": 100}, 100),
        ({"cuda_graph_bs": (5, 50, 3)}, 50),
        ({"cuda_graph_max_bs": 9}, 9),
        ({"disable_cuda_graph": True}, 0),
    ],
)
def test_the_largest_decode_graph_follows_the_flags(asked: dict[str, Any], largest: int) -> None:
    assert max(server("qwen3_moe", "H200", **asked).runtime.graphs.decode, default=0) == largest


def test_a_layer_that_drafts_has_a_key_of_its_own_and_48_requests() -> None:
    found = server(model("deepseek", FP8), speculative_algorithm="EAGLE")
    one = found.runtime.speculative
    assert one is not None and found.draft is not None
    assert (one.num_steps, one.eagle_topk, one.num_draft_tokens) == (3, 1, 4)
    assert found.runtime.max_running_requests == 48
    assert found.draft.key_parts == (*found.tuning.key_parts, "draft_quant=fp8")


@pytest.mark.parametrize(("tp", "dp"), [(1, 1), (4, 1), (4, 2)])
def test_flashinfers_all_to_all_wants_as_many_groups_as_ranks(tp: int, dp: int) -> None:
    asked: dict[str, Any] = {"tp_size": tp, "dp_size": dp, "enable_dp_attention": dp > 1}
    with pytest.raises(ConfigError, match=f"needs as many attention-DP groups as TP ranks: {dp} of {tp}"):
        server("qwen3_moe", **asked, moe_a2a_backend="flashinfer", moe_runner_backend=CUTLASS)
    assert (
        server("qwen3_moe", **DP, moe_a2a_backend="flashinfer", moe_runner_backend=CUTLASS).parallel.ep == 4
    )

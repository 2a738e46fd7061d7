"""The MoE backend and the spread of the experts, as SGLang's code answers by family, GPU and release."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from tests.server.asking import FP8, MODELOPT_FP8, MXFP4, NVFP4, PACKED, model, server

TRTLLM, ROUTED, CUTLASS = "flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_cutlass"
_INT4 = {"num_bits": 4, "group_size": 32, "strategy": "group", "type": "int"}
_KIMI_INT4 = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": _INT4}}}
_KIMI_INT8 = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {**_INT4, "num_bits": 8}}},
}


@pytest.mark.parametrize(
    ("checkpoint", "version", "gpu", "backend"),
    [
        (model("qwen3_moe"), 12, "B200", TRTLLM),
        (model("qwen3_moe"), 23, "GB300", TRTLLM),
        (model("qwen3_moe"), 23, "H200", "auto"),
        (model("qwen3_moe"), 23, "RTX PRO 6000", "auto"),
        (model("qwen3_moe", FP8), 23, "B200", TRTLLM),
        (model("qwen3_moe", NVFP4), 23, "B200", TRTLLM),
        (model("qwen3_moe", MODELOPT_FP8), 23, "B200", "auto"),
        (model("qwen3_moe", NVFP4), 23, "RTX PRO 6000", "auto"),
        (model("qwen3"), 23, "B200", "auto"),
        (model("deepseek", FP8), 23, "B200", TRTLLM),
        (model("deepseek", MODELOPT_FP8), 23, "B200", TRTLLM),
        (model("kimi_k2", _KIMI_INT4), 23, "B200", TRTLLM),
        (model("kimi_k2", _KIMI_INT8), 23, "B200", "auto"),
        (model("kimi_k2", PACKED), 23, "B200", "auto"),
        (model("longcat"), 15, "B200", "auto"),
        (model("longcat"), 16, "B200", TRTLLM),
        (model("longcat"), 17, "B200", "auto"),
        (model("glm4"), 14, "B200", "auto"),
        (model("glm4"), 15, "B200", TRTLLM),
        (model("glm4", NVFP4), 12, "B200", TRTLLM),
        (model("glm4", PACKED), 23, "B200", "auto"),
        (model("llama4"), 23, "B200", "auto"),
        (model("minimax", NVFP4), 17, "B200", "auto"),
        (model("minimax", NVFP4), 18, "B200", ROUTED),
        (model("minimax", FP8), 23, "B200", "auto"),
        (model("nemotron"), 12, "B200", "auto"),
        (model("nemotron"), 13, "B200", TRTLLM),
        (model("nemotron"), 13, "H200", CUTLASS),
        (model("nemotron", NVFP4), 12, "H200", CUTLASS),
        (model("nemotron", NVFP4), 13, "H200", "marlin"),
        (model("nemotron", NVFP4), 13, "RTX PRO 6000", CUTLASS),
        (model("nemotron", MODELOPT_FP8), 23, "H200", CUTLASS),
        (model("nemotron", MODELOPT_FP8), 23, "B200", TRTLLM),
        (model("gemma4", NVFP4), 12, "B200", "auto"),
        (model("gemma4", NVFP4), 13, "B200", TRTLLM),
        (model("cohere"), 18, "B200", "auto"),
        (model("cohere"), 19, "B200", TRTLLM),
        (model("cohere"), 19, "H200", "auto"),
        (model("cohere", PACKED), 19, "B200", "auto"),
        (model("cohere", {**PACKED, "format": "nvfp4-pack-quantized"}), 18, "B200", "auto"),
        (model("cohere", {**PACKED, "format": "nvfp4-pack-quantized"}), 19, "B200", TRTLLM),
        (model("gpt_oss", MXFP4), 12, "B200", "flashinfer_mxfp4"),
        (model("gpt_oss", MXFP4), 13, "RTX PRO 6000", "triton_kernel"),
        (model("gpt_oss", MXFP4), 14, "RTX PRO 6000", "marlin"),
        (model("gpt_oss", MXFP4), 16, "RTX PRO 6000", "marlin"),
        (model("gpt_oss", MXFP4), 17, "RTX PRO 6000", "flashinfer_mxfp4"),
        (model("gpt_oss", MXFP4), 23, "H200", "triton_kernel"),
        (model("gpt_oss"), 23, "B200", "triton_kernel"),
        (model("gpt_oss"), 23, "RTX PRO 6000", "triton_kernel"),
    ],
)
def test_an_unset_backend(checkpoint: Checkpoint, version: int, gpu: str, backend: str) -> None:
    assert server(checkpoint, version, gpu).moe_runner_backend == backend


_FP4 = {"quant_method": "fp8", "routed_experts_quant_method": "mxfp4"}


@pytest.mark.parametrize(
    ("quantized", "version", "gpu", "backend"),
    [
        (FP8, 21, "B200", TRTLLM),
        (FP8, 22, "B200", TRTLLM),
        (_FP4, 21, "B200", TRTLLM),
        (_FP4, 22, "B200", "flashinfer_mxfp4"),
        (_FP4, 22, "H200", "marlin"),
        (_FP4, 21, "H200", "auto"),
        (FP8, 22, "H200", "auto"),
    ],
)
def test_mimo(quantized: dict[str, Any], version: int, gpu: str, backend: str) -> None:
    own = {"auto_map": {"AutoConfig": "configuration_mimo.MiMoV2FlashConfig"}}
    assert server(model("mimo", quantized, **own), version, gpu).moe_runner_backend == backend


@pytest.mark.parametrize(
    ("quantized", "version", "gpu", "a2a", "backend"),
    [
        (_FP4, 20, "H200", "none", "auto"),
        *((_FP4, 21, gpu, "none", "flashinfer_mxfp4") for gpu in ("H200", "B200", "RTX PRO 6000")),
        (_FP4, 21, "A100 80GB", "none", "auto"),
        (_FP4, 21, "B200", "mooncake", "auto"),
        (FP8, 21, "B200", "none", "auto"),
    ],
)
def test_bailings_experts_of_four_bits(
    quantized: dict[str, Any], version: int, gpu: str, a2a: str, backend: str
) -> None:
    named = {"architectures": ["BailingMoeV3ForCausalLM"], "model_type": "bailing_hybrid"}
    found = server(model("qwen3_moe", quantized, **named), version, gpu, tp_size=4, moe_a2a_backend=a2a)
    assert found.moe_runner_backend == backend


def test_mimo_before_0_5_17_stays_unset() -> None:
    own = {"auto_map": {"AutoConfig": "configuration_mimo.MiMoV2FlashConfig"}}
    assert server(model("mimo", FP8, **own), 16).moe_runner_backend == "auto"
    assert server(model("mimo", FP8, **own), 17).moe_runner_backend == TRTLLM


_LAYERS = {"layers.0.mlp.experts.0": {"quant_algo": "W4A16_NVFP4"}}
_MIXED = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": _LAYERS}
_MIXED_NVFP4 = {**_MIXED, "quantized_layers": {"layers.0.mlp.experts.0": {"quant_algo": "NVFP4"}}}


@pytest.mark.parametrize(
    ("checkpoint", "version", "backend"),
    [
        (model("qwen3_moe", _MIXED_NVFP4), 19, "auto"),
        (model("qwen3_moe", _MIXED_NVFP4), 20, TRTLLM),
        (model("qwen3_moe", _MIXED), 20, "marlin"),
        (model("nemotron", _MIXED), 17, TRTLLM),
        (model("nemotron", _MIXED), 18, "marlin"),
    ],
)
def test_mixed_experts(checkpoint: Checkpoint, version: int, backend: str) -> None:
    assert server(checkpoint, version).moe_runner_backend == backend


@pytest.mark.parametrize(
    ("checkpoint", "backend"),
    [
        (model("minimax", NVFP4), ROUTED),
        (model("minimax3"), "triton"),
        (model("minimax3", {"quant_method": "mxfp8"}), "deep_gemm"),
        (model("kimi_k3", {**PACKED, "format": "mxfp4-pack-quantized"}), "flashinfer_mxfp4"),
        (model("mobius"), "triton_kernel"),
        (model("cohere"), TRTLLM),
        (model("cohere", {**PACKED, "format": "nvfp4-pack-quantized"}), TRTLLM),
        (model("gemma4", NVFP4), TRTLLM),
        (model("glm4", NVFP4), "auto"),
        (model("deepseek", FP8), "auto"),
    ],
)
def test_whose_backend_an_all_to_all_leaves_as_it_is(checkpoint: Checkpoint, backend: str) -> None:
    assert server(checkpoint, tp_size=4, moe_a2a_backend="mooncake").moe_runner_backend == backend
    assert server(checkpoint).moe_runner_backend in (backend, TRTLLM)


_OF_NVFP4_EXPERTS = {"quant_method": "fp8", "quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4"}
_FLASH = {"auto_map": {"AutoConfig": "configuration_mimo.MiMoV2FlashConfig"}}


@pytest.mark.parametrize(
    ("checkpoint", "version", "gpu", "alone", "behind"),
    [
        (model("nemotron"), 12, "H200", "auto", "auto"),
        (model("nemotron"), 13, "H200", CUTLASS, CUTLASS),
        (model("nemotron"), 13, "B200", TRTLLM, CUTLASS),
        (model("nemotron", NVFP4), 12, "B200", TRTLLM, CUTLASS),
        (model("nemotron", NVFP4), 13, "H200", "marlin", "marlin"),
        (model("nemotron", MODELOPT_FP8), 23, "H200", CUTLASS, CUTLASS),
        (model("nemotron", _MIXED), 17, "B200", TRTLLM, CUTLASS),
        (model("nemotron", _MIXED), 18, "B200", "marlin", "marlin"),
        (model("qwen3_moe", _MIXED), 19, "B200", "auto", "auto"),
        (model("qwen3_moe", _MIXED), 20, "B200", "marlin", "marlin"),
        (model("mimo", FP8, **_FLASH), 16, "B200", "auto", "auto"),
        (model("mimo", FP8, **_FLASH), 17, "B200", TRTLLM, TRTLLM),
        (model("mimo", FP8, **_FLASH), 21, "B200", TRTLLM, TRTLLM),
        (model("mimo", FP8, **_FLASH), 22, "B200", TRTLLM, "auto"),
        (model("mimo", _FP4, **_FLASH), 22, "B200", "flashinfer_mxfp4", "auto"),
        (model("mimo", _FP4, **_FLASH), 22, "H200", "marlin", "marlin"),
        (model("deepseek_v4", _OF_NVFP4_EXPERTS | {"group_size": 16}), 14, "B200", ROUTED, ROUTED),
        (model("deepseek_v4"), 18, "RTX PRO 6000", "marlin", "marlin"),
        (model("deepseek_v4"), 19, "RTX PRO 6000", "flashinfer_mxfp4", "auto"),
        (model("minimax3"), 12, "L40S", "auto", "auto"),
        (model("minimax3"), 16, "L40S", "triton", "triton"),
        (model("minimax3"), 23, "H200", "triton", "triton"),
        (model("mobius"), 23, "H200", "triton_kernel", "triton_kernel"),
        (model("kimi_k2", _KIMI_INT4), 23, "B200", TRTLLM, "auto"),
        (model("glm4"), 23, "B200", TRTLLM, "auto"),
        (model("longcat"), 16, "B200", TRTLLM, "auto"),
    ],
)
def test_what_an_all_to_all_leaves_of_an_unset_backend(
    checkpoint: Checkpoint, version: int, gpu: str, alone: str, behind: str
) -> None:
    found = [
        server(checkpoint, version, gpu, tp_size=4, moe_a2a_backend=a2a).moe_runner_backend
        for a2a in ("none", "mooncake")
    ]
    assert found == [alone, behind]


def test_hunyuan_in_mxfp8_runs_on_deep_gemm() -> None:
    quantized = {"quant_method": "modelopt", "quant_algo": "MXFP8"}
    for gpu in ("H200", "B200"):
        found = server(model("hy_v4", quantized), 20, gpu)
        assert found.moe_runner_backend == "deep_gemm" and not found.tunes
    assert server(model("hy_v4"), 20).moe_runner_backend == TRTLLM


_NVFP4_EXPERTS = {"quant_method": "fp8", "quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4"}


@pytest.mark.parametrize(
    ("quantized", "gpu", "version", "backend"),
    [
        ({**_NVFP4_EXPERTS, "group_size": 16}, "B200", 13, "auto"),
        ({**_NVFP4_EXPERTS, "group_size": 16}, "B200", 14, ROUTED),
        (None, "RTX PRO 6000", 12, "auto"),
        (None, "RTX PRO 6000", 13, "marlin"),
        (None, "RTX PRO 6000", 18, "marlin"),
        (None, "RTX PRO 6000", 19, "flashinfer_mxfp4"),
        (None, "H200", 18, "auto"),
        (None, "H200", 19, "flashinfer_mxfp4"),
        (None, "L40S", 19, "auto"),
    ],
)
def test_deepseek_v4(quantized: dict[str, Any] | None, gpu: str, version: int, backend: str) -> None:
    assert server(model("deepseek_v4", quantized), version, gpu).moe_runner_backend == backend


@pytest.mark.parametrize(
    ("version", "gpu", "asked", "backend"),
    [
        (23, "H200", {"quantization": "mxfp8"}, TRTLLM),
        (23, "B200", {"quantization": "mxfp8", "moe_runner_backend": "triton"}, TRTLLM),
        (23, "B200", {"quantization": "mxfp8", "moe_runner_backend": "cutlass"}, "cutlass"),
        (23, "B200", {"quantization": "mxfp8", "moe_runner_backend": ROUTED}, ROUTED),
        (15, "B200", {"quantization": "mxfp8", "moe_runner_backend": "deep_gemm"}, TRTLLM),
        (16, "B200", {"quantization": "mxfp8", "moe_runner_backend": "deep_gemm"}, "deep_gemm"),
        (14, "B200", {"quantization": "nvfp4_online"}, TRTLLM),
        (18, "B200", {"quantization": "nvfp4_online", "moe_runner_backend": "flashinfer_cutedsl"}, None),
        (12, "RTX PRO 6000", {"quantization": "modelopt_fp4"}, "auto"),
        (13, "RTX PRO 6000", {"quantization": "modelopt_fp4"}, CUTLASS),
        (23, "RTX PRO 6000", {"quantization": "modelopt_fp4", "moe_runner_backend": "triton"}, "triton"),
        (23, "H200", {"quantization": "modelopt_fp4"}, "auto"),
    ],
)
def test_the_argument_quantization_chooses(
    version: int, gpu: str, asked: dict[str, Any], backend: str | None
) -> None:
    found = server("qwen3_moe", version, gpu, **asked).moe_runner_backend
    assert found == (backend or asked["moe_runner_backend"])


def test_llama4_looks_at_the_argument_only() -> None:
    scout = model("llama4", MODELOPT_FP8)
    assert server(scout).moe_runner_backend == "auto"
    asked = server(scout, quantization="modelopt_fp8", tp_size=4, moe_a2a_backend="deepep")
    assert asked.moe_runner_backend == TRTLLM, "whatever the all-to-all"


def test_an_all_to_all_keeps_most_families_backend_unset() -> None:
    assert server("qwen3_moe", tp_size=4, moe_a2a_backend="deepep").moe_runner_backend == "auto"


def test_expert_parallelism_takes_gpt_oss_off_the_triton_kernel() -> None:
    found = server(model("gpt_oss", MXFP4), gpu="H200", tp_size=2, ep_size=2)
    assert found.moe_runner_backend == "auto"


@pytest.mark.parametrize(
    ("a2a", "version", "spread"),
    [
        ("none", 23, 1),
        ("deepep", 12, 8),
        ("mooncake", 23, 8),
        ("mori", 23, 8),
        ("megamoe", 12, 8),
        ("ascend_tp", 23, 1),
    ],
)
def test_an_all_to_all_spreads_the_experts(a2a: str, version: int, spread: int) -> None:
    found = server("deepseek", version, "H200", tp_size=8, moe_a2a_backend=a2a, chunked_prefill_size=4096)
    assert found.ep_size == spread


@pytest.mark.parametrize(("a2a", "since"), [("pplx", 17), ("deepep_v2", 19)])
def test_an_all_to_all_that_runs_on_deep_gemm_only(a2a: str, since: int) -> None:
    few = {"chunked_prefill_size": 1024, "cuda_graph_max_bs": 128}
    apart = {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}
    found = server("deepseek", since, "H200", moe_a2a_backend=a2a, **apart, **few)
    assert (found.moe_runner_backend, found.ep_size) == ("deep_gemm", 8)


def test_waterfill_needs_deepep() -> None:
    found = server("deepseek", gpu="H200", tp_size=8, enable_waterfill=True)
    assert (found.moe_a2a_backend, found.ep_size) == ("deepep", 8)


def test_megamoe_is_an_alias_of_its_all_to_all() -> None:
    found = server(model("deepseek", FP8), tp_size=8, moe_runner_backend="megamoe")
    assert (found.moe_runner_backend, found.moe_a2a_backend, found.ep_size) == ("auto", "megamoe", 8)


def test_flashinfers_megamoe() -> None:
    asked = {"tp_size": 4, "attn_dp_size": 4, "moe_a2a_backend": "flashinfer_megamoe"}
    found = server(model("deepseek", NVFP4), speculative_algorithm="EAGLE", **asked)
    assert (found.moe_runner_backend, found.ep_size) == ("flashinfer_megamoe", 4)
    assert found.draft is not None and found.draft.moe_runner_backend == TRTLLM
    before = server(model("deepseek", NVFP4), 21, speculative_algorithm="EAGLE", **asked).draft
    assert before is not None and before.moe_runner_backend == "flashinfer_megamoe"


def test_a_dispatch_type_routes_since_0_5_20() -> None:
    asked: dict[str, Any] = {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}
    asked |= {"moe_a2a_backend": "flashinfer"}
    asked |= {"moe_runner_backend": TRTLLM, "flashinfer_a2a_dispatch_type": "auto"}
    assert server("qwen3_moe", 19, **asked).moe_runner_backend == TRTLLM
    assert server("qwen3_moe", 20, **asked).moe_runner_backend == ROUTED
    assert (
        server("qwen3_moe", 20, **{**asked, "flashinfer_a2a_dispatch_type": None}).moe_runner_backend
        == TRTLLM
    )


_MIXED_CUTEDSL = model("qwen3_moe", {**_NVFP4_EXPERTS, "group_size": 16})
_MEGAMOE = {"moe_a2a_backend": "flashinfer_megamoe", "tp_size": 4, "attn_dp_size": 4}


def test_gpt_oss_under_a_quantization_of_the_command_stays_unset() -> None:
    assert server("gpt_oss", gpu="H200", quantization="fp8").moe_runner_backend == "auto"


def test_minimax_m3_in_bfloat16_leaves_deep_gemm() -> None:
    assert server("minimax3", moe_runner_backend="deep_gemm").moe_runner_backend == "triton"
    assert server("minimax3", moe_runner_backend="cutlass").moe_runner_backend == "cutlass"


def test_mimo_looks_at_what_its_checkpoint_declares() -> None:
    assert server("mimo", quantization="fp8").moe_runner_backend == "auto"
    assert server(model("mimo", FP8)).moe_runner_backend == TRTLLM


def test_mxfp8_under_flashinfers_megamoe_runs_its_kernels() -> None:
    found = server("qwen3_moe", quantization="mxfp8", **_MEGAMOE)
    assert found.moe_runner_backend == "flashinfer_megamoe"


def test_cutedsl_takes_fp8_checkpoints_of_nvfp4_experts_since_0_5_15() -> None:
    asked = {"moe_runner_backend": "flashinfer_cutedsl"}
    assert server(_MIXED_CUTEDSL, 15, **asked).moe_runner_backend == "flashinfer_cutedsl"
    with pytest.raises(ConfigError, match="does not take quantization fp8"):
        server(_MIXED_CUTEDSL, 14, **asked)


@pytest.mark.parametrize(("method", "spreads"), [("fp8", False), ("mxfp8", False), ("modelopt_fp8", True)])
def test_cutlass_spreads_no_experts_in_blocks(method: str, spreads: bool) -> None:
    asked = {"quantization": method, "moe_runner_backend": "cutlass", "tp_size": 4, "ep_size": 2}
    if spreads:
        assert server("qwen3_moe", **asked).ep_size == 2
    else:
        with pytest.raises(ConfigError, match=f"no expert parallelism with {method}"):
            server("qwen3_moe", **asked)


def test_nvfp4_online_names_the_backends_that_run_it() -> None:
    with pytest.raises(ConfigError) as refusal:
        server("qwen3_moe", quantization="nvfp4_online", moe_runner_backend="triton")
    named = [one["moe_runner_backend"] for one in refusal.value.tries if not isinstance(one, str)]
    assert named == [TRTLLM, ROUTED, "flashinfer_cutedsl", "experimental_sgl_trtllm"]


@pytest.mark.parametrize(
    ("checkpoint", "runs"),
    [(_MIXED_CUTEDSL, True), (model("qwen3_moe", NVFP4), True), (model("qwen3_moe"), False)],
)
def test_nvfp4_is_dispatched_to_nvfp4_experts(checkpoint: Checkpoint, runs: bool) -> None:
    asked = {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True, "moe_a2a_backend": "flashinfer"}
    backend = "flashinfer_cutedsl" if runs else CUTLASS
    asked |= {"flashinfer_a2a_dispatch_type": "nvfp4", "moe_runner_backend": backend}
    if runs:
        assert server(checkpoint, **asked).moe_runner_backend == backend
    else:
        with pytest.raises(ConfigError, match="needs nvfp4 experts"):
            server(checkpoint, **asked)


@pytest.mark.parametrize("version", [14, 23])
def test_prefills_shared_among_ranks_leave_deepep_without_trtllm(version: int) -> None:
    shared = {"enable_prefill_cp": True, "cp_strategy": "zigzag"}
    found = server(model("deepseek", FP8), version, "B200", tp_size=8, others=shared)
    assert (found.moe_a2a_backend, found.moe_runner_backend) == ("deepep", "auto")


@pytest.mark.parametrize(("tp", "dp"), [(1, 1), (4, 1), (4, 2)])
def test_flashinfers_all_to_all_wants_as_many_groups_as_ranks(tp: int, dp: int) -> None:
    asked: dict[str, Any] = {"tp_size": tp, "dp_size": dp, "enable_dp_attention": dp > 1}
    asked |= {"moe_a2a_backend": "flashinfer", "moe_runner_backend": "flashinfer_cutlass"}
    assert server("qwen3_moe", 12, "B200", **asked).moe_a2a_backend == "flashinfer"
    for version in (13, 16, 23):
        with pytest.raises(ConfigError, match=f"needs as many attention-DP groups as TP ranks: {dp} of {tp}"):
            server("qwen3_moe", version, "B200", **asked)


@pytest.mark.parametrize(
    ("family", "declared", "hopper", "blackwell", "workstation"),
    [
        ("deepseek_v4", {}, "flashinfer_mxfp4", "flashinfer_mxfp4", "flashinfer_mxfp4"),
        ("deepseek_v4", {"routed_experts_quant_method": "fp8"}, "auto", "auto", "auto"),
        ("mimo", {}, "auto", TRTLLM, "auto"),
        ("mimo", {"store_dtype": "mxfp4"}, "marlin", "flashinfer_mxfp4", "auto"),
        ("mimo", {"store_dtype": "fp8"}, "auto", TRTLLM, "auto"),
    ],
)
def test_experts_in_four_bits_are_told_by_the_checkpoint(
    family: str, declared: dict[str, str], hopper: str, blackwell: str, workstation: str
) -> None:
    checkpoint = model(family, {"quant_method": "fp8", **declared})
    for gpu, backend in (("H200", hopper), ("B200", blackwell), ("RTX PRO 6000", workstation)):
        assert server(checkpoint, 23, gpu).moe_runner_backend == backend

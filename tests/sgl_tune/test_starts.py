"""Servers that SGLang begins to load and that end there: the reason, by release, GPU and weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.models import presets
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.call_shapes import routing_of
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.keys import expected_keys
from sgl_tune.keys.plan import make_plan
from sgl_tune.keys.starts import never_starts
from sgl_tune.keys.verdict import verdict_of
from tests.oracle.published import published
from tests.sgl_tune.ends import CUTLASS, DEEPSEEK, OWN_CLASS, QWEN, TRTLLM, why_it_ends

MXFP4 = {"moe_runner_backend": "flashinfer_mxfp4"}
GPT_OSS = {"model_path": "gpt-oss-20b", **MXFP4, "flashinfer_version": None}


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({**QWEN, **TRTLLM, "arch": "sm90"}, "FlashInfer has no flashinfer_trtllm kernels for sm90"),
        ({**QWEN, **TRTLLM}, None),
        ({**QWEN, "quantization": "mxfp8", "arch": "sm90", **CUTLASS}, "quantization mxfp8 needs sm100"),
        ({**QWEN, **CUTLASS, "arch": "sm90", "quantization": "modelopt_fp4"}, "for experts in modelopt_fp4"),
        ({**QWEN, **CUTLASS, "quantization": "modelopt_fp4"}, None),
        ({**QWEN, **TRTLLM, "tp": 2, "moe_a2a_backend": "deepep"}, "behind all-to-all deepep"),
        ({**QWEN, **TRTLLM, "quantization": "fp8"}, "for experts in fp8 without blocks"),
        ({**DEEPSEEK, **TRTLLM}, None),
        ({**DEEPSEEK, **CUTLASS, "arch": "sm90", "sglang_version": "0.5.19"}, "for experts in fp8"),
        ({**DEEPSEEK, **CUTLASS, "arch": "sm90", "sglang_version": "0.5.20"}, None),
        ({"model_path": "gpt-oss-20b", **CUTLASS}, "for experts in mxfp4"),
        ({**QWEN, "arch": "sm90"}, None),
        ({**GPT_OSS, "sglang_version": "0.5.16", "arch": "sm120"}, "for experts in mxfp4"),
        ({**GPT_OSS, "sglang_version": "0.5.17", "arch": "sm120"}, None),
        ({**GPT_OSS, "sglang_version": "0.5.12", "arch": "sm90"}, None),
        ({**DEEPSEEK, **MXFP4}, "for experts in fp8"),
        ({**DEEPSEEK, "moe_runner_backend": "flashinfer_megamoe"}, "behind all-to-all none"),
    ],
)
def test_why_a_server_ends_while_it_loads(flags: dict[str, Any], why: str | None) -> None:
    found = why_it_ends(**flags)
    assert found is None if why is None else found is not None and why in found


_COHERE = {
    "model_type": "cohere2_moe", "architectures": ["Cohere2MoeForCausalLM"], "dtype": "bfloat16",
    "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 32, "vocab_size": 512,
    "intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "expert_selection_fn": "sigmoid",
}  # fmt: skip


LLAMA, STEP = "nvidia/Llama-4-Scout-17B-16E-Instruct-", "stepfun-ai/Step-3.5-Flash"
CUTEDSL = {"moe_runner_backend": "flashinfer_cutedsl", "quantization": "modelopt_fp4"}
ROUTED = {"moe_runner_backend": "flashinfer_trtllm_routed"}
WEIGHTED, CHOSEN = "does not take rows that are weighted", "does not take how experts of"
BF16, FP8, FP4 = "meta-llama/Llama-4-Scout-17B-16E-Instruct", f"{LLAMA}FP8", f"{LLAMA}NVFP4"


@pytest.mark.parametrize(
    ("model", "release", "backend", "why"),
    [
        (BF16, "0.5.14", CUTLASS, None),
        (FP8, "0.5.14", CUTLASS, None),
        (FP4, "0.5.14", CUTLASS, WEIGHTED),
        (BF16, "0.5.15", CUTLASS, WEIGHTED),
        (FP8, "0.5.20", CUTLASS, WEIGHTED),
        (FP8, "0.5.21", CUTLASS, None),
        (FP4, "0.5.23", CUTLASS, WEIGHTED),
        (FP4, "0.5.23", CUTEDSL, WEIGHTED),
        (BF16, "0.5.23", TRTLLM, CHOSEN),  # its shares are not made one
        (BF16, "0.5.23", ROUTED, None),
        (FP8, "0.5.22", TRTLLM, None),
        (FP8, "0.5.22", ROUTED, None),  # on Triton's kernels
        (FP8, "0.5.23", ROUTED, None),
        (FP4, "0.5.17", TRTLLM, None),
        (STEP, "0.5.22", TRTLLM, CHOSEN),
        (STEP, "0.5.22", ROUTED, None),
        (STEP, "0.5.23", TRTLLM, None),
        (f"{STEP}-FP8", "0.5.13", TRTLLM, CHOSEN),
    ],
)
def test_experts_that_are_chosen_or_weighted_otherwise(
    model: str, release: str, backend: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    found = published()[model]
    own = OWN_CLASS if model.startswith(STEP) else {}
    (tmp_path / "config.json").write_text(json.dumps({**found.config, **own}))
    if found.modelopt_file:
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(found.modelopt_file))
    versions = {"sglang_version": release, "flashinfer_version": None}
    ends = why_it_ends(model_path=str(tmp_path), tp=4, **versions, **backend)
    assert ends is None if why is None else ends is not None and why in ends


@pytest.mark.parametrize(
    ("release", "renormalize", "why"),
    [("0.5.22", False, CHOSEN), ("0.5.23", False, None), ("0.5.22", True, None), ("0.5.23", True, None)],
)
def test_command_a_plus_names_how_it_routes_and_north_chooses_itself(
    release: str, renormalize: bool, why: str | None, tmp_path: Path
) -> None:
    told = {**_COHERE, "norm_topk_prob": renormalize}
    (tmp_path / "config.json").write_text(json.dumps(told))
    flags = ServerFlags(model_path=str(tmp_path), arch="sm100", sglang_version=release)
    deployment = resolve_deployment(flags, environ={})
    ends = never_starts(deployment)
    assert deployment.server.moe_runner_backend == "flashinfer_trtllm"
    assert ends is None if why is None else ends is not None and why in ends
    assert (routing_of(deployment) == "logits") is (renormalize or release == "0.5.22")


def test_compressed_nvfp4_experts_are_planned_on_the_backend_that_sglang_chooses(tmp_path: Path) -> None:
    """As Command A+ is published in four bits: SGLang chooses its backend for it."""
    weights = {
        "num_bits": 4,
        "type": "float",
        "strategy": "tensor_group",
        "group_size": 16,
        "symmetric": True,
    }
    group = {"targets": ["Linear"], "weights": weights, "input_activations": weights}
    section = {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "config_groups": {"group_0": group},
    }
    (tmp_path / "config.json").write_text(json.dumps({**_COHERE, "quantization_config": section}))
    flags = ServerFlags(model_path=str(tmp_path), arch="sm100", sglang_version="0.5.23")
    deployment = resolve_deployment(flags, environ={})
    assert deployment.server.moe_runner_backend == "flashinfer_trtllm"
    assert never_starts(deployment) is None and unplanned(deployment) == ()
    assert [op.op for op in expected_keys(deployment)] == ["flashinfer::trtllm_fp4_block_scale_moe"]


@pytest.mark.parametrize(
    ("bits", "release", "ends"),
    [(4, "0.5.22", False), (8, "0.5.22", True), (4, "0.5.23", False), (8, "0.5.23", False)],
)
def test_trtllm_runs_compressed_experts_in_four_bits_alone(
    bits: int, release: str, ends: bool, tmp_path: Path
) -> None:
    """Of Marlin's, its routers choose since 0.5.23."""
    config = next(dict(preset.config) for preset in presets() if preset.name == "DeepSeek-V3")
    weights = {"num_bits": bits, "group_size": 32, "strategy": "group", "type": "int"}
    section = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": weights, "targets": ["Linear"]}},
        "ignore": ["lm_head", "re:.*self_attn.*"],
    }
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": section}))
    versions = {"sglang_version": release, "flashinfer_version": None}
    assert (why_it_ends(model_path=str(tmp_path), tp=8, **versions, **TRTLLM) is not None) is ends


@pytest.mark.parametrize(("named", "ends"), [({}, True), ({"architectures": ["Qwen3ForCausalLM"]}, False)])
@pytest.mark.parametrize("release", ["0.5.12", "0.5.23"])
def test_sglang_asks_for_the_first_class(
    release: str, named: dict[str, Any], ends: bool, tmp_path: Path
) -> None:
    model = {"model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 8, "vocab_size": 151936}
    model |= {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    (tmp_path / "config.json").write_text(json.dumps({**model, "intermediate_size": 12288, **named}))
    found = why_it_ends(model_path=str(tmp_path), arch="sm90", sglang_version=release)
    assert (found is not None and "architectures names no class" in found) == ends, found


def test_nothing_is_planned_of_it_and_the_first_line_says_why() -> None:
    flags = {**QWEN, **TRTLLM, "arch": "sm90", "sglang_version": "0.5.23", "flashinfer_version": "0.7.2"}
    deployment = resolve_deployment(ServerFlags(**flags), environ={})
    verdict = verdict_of(make_plan(deployment, gpus=()))
    assert expected_keys(deployment) == () and not verdict.runs and verdict.exit_code == 1
    assert verdict.says.startswith("tunes nothing: this server does not start: FlashInfer has no")


@pytest.mark.parametrize(
    ("context", "environ", "ends"),
    [
        ({}, {}, True),
        ({"context_length": 2048}, {}, False),
        ({"context_length": 2049}, {}, True),
        ({}, {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}, False),
        ({}, {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "0"}, True),
    ],
)
@pytest.mark.parametrize("release", ["0.5.12", "0.5.17", "0.5.23"])
def test_a_draft_holds_the_context_of_its_target(
    release: str, context: dict[str, Any], environ: dict[str, str], ends: bool, tmp_path: Path
) -> None:
    for name in ("llama", "llama_eagle3"):
        told = json.loads((Path(__file__).parents[1] / f"oracle/models/{name}.json").read_text())
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(told["config"]))
    drafts = {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": tmp_path / "llama_eagle3"}
    own = {name: str(value) for name, value in drafts.items()}
    own |= {"dtype": "bfloat16"}
    flags: dict[str, Any] = {"model_path": str(tmp_path / "llama"), "arch": "sm90", **own, **context}
    deployment = resolve_deployment(ServerFlags(**flags, sglang_version=release), environ=environ)
    found = never_starts(deployment)
    assert found is not None and "its draft has 2048 positions" in found if ends else found is None

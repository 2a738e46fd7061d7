"""ModelOpt's mixed checkpoints: each matrix is planned as one of a checkpoint all of whose are alike."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.models import presets
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.call_shapes import moe_shapes, tunes_moe
from sgl_tune.keys.dense_shapes import dense_shapes
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.plan import make_plan
from sgl_tune.keys.starts import never_starts
from tests.sgl_tune.modelopt import quantized

MODEL = "Qwen3-30B-A3B"
_TOLD = next(preset.config for preset in presets() if preset.name == MODEL)
_LAYERS = range(_TOLD["num_hidden_layers"])
_QKV = tuple(f"self_attn.{one}_proj" for one in "qkv")
_EXPERT = tuple(f"mlp.experts.0.{one}_proj" for one in ("gate", "up", "down"))
Kinds = Mapping[tuple[str, ...], str]


def mixed(folder: Path, kinds: Kinds, **more: Any) -> str:
    """Every layer's, or those of `even` alone: a name that begins so."""
    layers = {}
    for names, algorithm in kinds.items():
        for layer in _LAYERS:
            for name in names:
                if not name.startswith("even ") or layer % 2 == 0:
                    one = f"model.layers.{layer}.{name.removeprefix('even ')}"
                    layers[one] = {"quant_algo": algorithm}
    told = {"kv_cache_scheme": None, "ignore": ["lm_head"], **more}
    section = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": layers,
        **told,
    }
    return quantized(folder, MODEL, **section)


def deployed(path: str, sglang: str = "0.5.23", gpu: str = "B200", **flags: Any) -> Deployment:
    told = {"model_path": path, "sglang_version": sglang, "gpu": gpu, "tp": 2, **flags}
    return resolve_deployment(ServerFlags(**told), environ={})


def alone(folder: Path, algorithm: str) -> str:
    return quantized(folder, MODEL, quant_method="modelopt", quant_algo=algorithm, ignore=["lm_head"])


def _sizes(deployment: Deployment) -> set[tuple[str, tuple[tuple[int, ...], ...]]]:
    return {(shape.op, tuple(shape.profile(16))) for shape in dense_shapes(deployment)}


ALL_FP4 = {(*_QKV, "self_attn.o_proj"): "NVFP4", _EXPERT: "NVFP4"}


@pytest.mark.parametrize("sglang", ["0.5.15", "0.5.18", "0.5.23"])
@pytest.mark.parametrize("gpu", ["B200", "RTX PRO 6000"])
def test_one_of_a_single_kind_asks_for_what_a_whole_one_does(sglang: str, gpu: str, tmp_path: Path) -> None:
    (tmp_path / "mixed").mkdir()
    (tmp_path / "whole").mkdir()
    backend = {"moe_runner_backend": "flashinfer_cutlass"}
    one = deployed(mixed(tmp_path / "mixed", ALL_FP4), sglang, gpu, **backend)
    whole = deployed(alone(tmp_path / "whole", "NVFP4"), sglang, gpu, **backend)
    assert (one.quantization, whole.quantization) == ("modelopt_mixed", "modelopt_fp4")
    assert _keys(one) == _keys(whole) != set()
    assert unplanned(one) == ()


def _keys(deployment: Deployment) -> set[str]:
    return {entry.key for cache in make_plan(deployment).caches for op in cache.ops for entry in op.entries}


def test_each_matrix_is_multiplied_as_its_kind(tmp_path: Path) -> None:
    kinds = {_QKV: "FP8", ("self_attn.o_proj",): "MXFP8", _EXPERT: "NVFP4"}
    found = deployed(mixed(tmp_path, kinds))
    ops = {shape.op: tuple(shape.profile(16))[1] for shape in dense_shapes(found)}
    assert set(ops) == {"fp8_gemm", "mxfp8_gemm"}
    assert ops["fp8_gemm"][-1] == 2560 and ops["mxfp8_gemm"] == (2048, 2048)
    assert [shape.op for shape in moe_shapes(found)] == ["flashinfer::trtllm_fp4_block_scale_moe"]
    assert unplanned(found) == () and never_starts(found) is None


def test_weights_alone_and_blocks_ask_the_tuner_nothing(tmp_path: Path) -> None:
    kinds = {_QKV: "W4A16_NVFP4", ("self_attn.o_proj",): "FP8_BLOCK_SCALES", _EXPERT: "NVFP4"}
    found = deployed(mixed(tmp_path, kinds))
    assert dense_shapes(found) == () and moe_shapes(found) and unplanned(found) == ()


def test_experts_of_two_kinds_are_two_calls(tmp_path: Path) -> None:
    even = tuple(f"even {one}" for one in _EXPERT)
    found = deployed(mixed(tmp_path, {_QKV: "FP8", even: "NVFP4"}))
    assert sorted(shape.op for shape in moe_shapes(found)) == [
        "flashinfer::trtllm_bf16_moe",
        "flashinfer::trtllm_fp4_block_scale_moe",
    ]


@pytest.mark.parametrize(
    ("algorithm", "kept"),
    [("NVFP4", "trtllm_fp4_block_scale_moe"), ("FP8", "trtllm_fp8_per_tensor_scale_moe")],
)
def test_plain_experts_of_a_whole_one_have_a_call_of_their_own(
    algorithm: str, kept: str, tmp_path: Path
) -> None:
    """Which its list keeps so in some layers."""
    ignore = ["lm_head", *(f"model.layers.{layer}.mlp.experts*" for layer in range(3))]
    path = quantized(tmp_path, MODEL, quant_method="modelopt", quant_algo=algorithm, ignore=ignore)
    found = deployed(path, moe_runner_backend="flashinfer_trtllm")
    assert sorted(shape.op for shape in moe_shapes(found)) == [
        "flashinfer::trtllm_bf16_moe",
        f"flashinfer::{kept}",
    ]


def test_cutlass_and_cutedsl_run_experts_of_other_kinds_by_triton(tmp_path: Path) -> None:
    (tmp_path / "fp8").mkdir()
    in_mxfp8 = mixed(tmp_path, {_QKV: "NVFP4", _EXPERT: "MXFP8"})
    assert not tunes_moe(deployed(in_mxfp8, "0.5.23", moe_runner_backend="flashinfer_cutlass"))
    found = deployed(in_mxfp8, "0.5.19", moe_runner_backend="flashinfer_cutlass")
    assert never_starts(found) == "MoE backend flashinfer_cutlass has no kernels for experts in mxfp8"
    in_fp8 = mixed(tmp_path / "fp8", {_QKV: "NVFP4", _EXPERT: "FP8"})
    assert not tunes_moe(deployed(in_fp8, "0.5.20", moe_runner_backend="flashinfer_cutedsl"))
    spread = deployed(in_fp8, "0.5.20", moe_runner_backend="flashinfer_cutedsl", ep=2)
    assert [gap.what for gap in unplanned(spread)] == ["the experts of flashinfer_cutedsl"]


@pytest.mark.parametrize(
    ("kinds", "sglang", "why"),
    [
        ({_QKV: "FP8"}, "0.5.23", "without one in nvfp4: SGLang takes the file for one of w4afp8"),
        ({_QKV: "MXFP8", _EXPERT: "NVFP4"}, "0.5.16", "an algorithm that this SGLang knows nothing of"),
        ({_QKV: "W4A16_NVFP4", _EXPERT: "NVFP4"}, "0.5.14", "SGLang takes the file for one of w4afp8"),
        ({_QKV: "FP8_PB_WO", _EXPERT: "NVFP4"}, "0.5.20", "an algorithm that this SGLang knows nothing of"),
    ],
)
def test_what_a_release_does_not_know_is_named(kinds: Kinds, sglang: str, why: str, tmp_path: Path) -> None:
    found = deployed(mixed(tmp_path, kinds), sglang)
    assert why in found.shape.unknown


def test_lists_of_a_draft_and_of_an_embedding_are_named(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    path = mixed(tmp_path, ALL_FP4)
    _add(path, {"mtp.layers.0.mlp.up_proj": {"quant_algo": "NVFP4"}})
    assert deployed(path).shape.unknown == ""
    drafts = deployed(path, speculative_algorithm="NEXTN", speculative_num_steps=1, speculative_eagle_topk=1)
    assert "quantized_layers of a draft" in drafts.shape.unknown
    path = mixed(tmp_path / "table", ALL_FP4)
    _add(path, {"model.embed_tokens": {"quant_algo": "NVFP4"}})
    assert "quantized_layers of an embedding" in deployed(path).shape.unknown


def _add(path: str, layers: Mapping[str, Any]) -> None:
    file = Path(path, "config.json")
    told = json.loads(file.read_text())
    told["quantization_config"]["quantized_layers"] |= layers
    file.write_text(json.dumps(told))


def test_a_file_that_tells_nothing_of_keys_needs_modelopts_own(tmp_path: Path) -> None:
    path = mixed(tmp_path, ALL_FP4)
    file = tmp_path / "config.json"
    told = json.loads(file.read_text())
    del told["quantization_config"]["kv_cache_scheme"]
    file.write_text(json.dumps(told))
    assert "looks for hf_quant_config.json beside it" in str(never_starts(deployed(path)))
    section = told["quantization_config"]
    own = {"quantized_layers": section["quantized_layers"], "exclude_modules": section["ignore"]}
    beside = tmp_path / "hf_quant_config.json"
    quantization = {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8", **own}
    beside.write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": quantization}))
    found = deployed(path)
    assert never_starts(found) is None and found.server.kv_cache_dtype == "fp8_e4m3"


@pytest.mark.parametrize(
    ("algorithm", "sglang", "why"),
    [
        ("W4A16_NVFP4", "0.5.18", "knows FP8, NVFP4, NVFP4_AWQ"),
        ("W4A16_NVFP4", "0.5.19", None),
        ("NVFP4_AWQ", "0.5.16", "knows FP8, NVFP4"),
        ("nvfp4", "0.5.23", "knows FP8, NVFP4, NVFP4_AWQ, W4A16_NVFP4"),
    ],
)
def test_an_algorithm_that_a_release_has_not_ends_it(
    algorithm: str, sglang: str, why: str | None, tmp_path: Path
) -> None:
    found = deployed(alone(tmp_path, algorithm), sglang)
    ends = never_starts(found)
    assert ends is None if why is None else re.search(f"{why}$", str(ends))
    if why is None:
        assert "fp4_gemm" not in {shape.op for shape in dense_shapes(found)}

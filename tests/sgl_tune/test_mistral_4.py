"""Mistral Small 4 and Large 3 as servers find them: by a params.json, where the model's path says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.errors import UsageError
from sgl_tune.keys.plan import make_plan
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import params

_LARGE = params()["mistralai/Mistral-Large-3-675B-Instruct-2512"]
_SMALL = params()["mistralai/Mistral-Small-4-119B-2603"]


def _deployment(folder: Path, **flags: Any) -> Deployment:
    told = {"arch": "sm100", "sglang_version": "0.5.23", "flashinfer_version": "0.7.2", "tp": 8}
    return resolve_deployment(ServerFlags(**{**told, "model_path": str(folder), **flags}), environ={})


def _folder(place: Path, name: str, told: dict[str, Any], file: str = "params.json") -> Path:
    (place / name).mkdir(parents=True)
    (place / name / file).write_text(json.dumps(told))
    return place / name


def test_a_large_3_in_fp8_has_its_call_planned(tmp_path: Path) -> None:
    """Its scales for activations are in the checkpoint, so TRT-LLM's kernels take its experts."""
    deployment = _deployment(_folder(tmp_path, "Mistral-Large-3-675B", _LARGE))
    assert never_starts(deployment) is None and deployment.server.moe_runner_backend == "flashinfer_trtllm"
    assert deployment.server.context_length == 262144
    ops = [op for cache in make_plan(deployment).caches for op in cache.ops]
    assert [op.op for op in ops] == ["flashinfer::trtllm_fp8_per_tensor_scale_moe", "fp8_gemm"]


def test_what_quantizes_activations_as_they_come_has_no_such_kernels(tmp_path: Path) -> None:
    dynamic = {**_LARGE, "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "NO_SCALES"}}
    why = never_starts(_deployment(_folder(tmp_path, "mistral-large-3", dynamic)))
    assert why is not None and "flashinfer_trtllm has no kernels for experts in fp8 without blocks" in why


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, None),
        ({"speculative_algorithm": "EAGLE"}, "drafts: here none stands beside its layers"),
    ],
)
def test_what_its_class_is_not_written_for(flags: dict[str, Any], said: str | None, tmp_path: Path) -> None:
    deployment = _deployment(_folder(tmp_path, "mistral-small-4", _SMALL), arch="sm90", **flags)
    assert deployment.server.key and (said is None or said in deployment.shape.unknown)
    assert (deployment.shape.model is None) is (said is not None)


def test_experts_beside_images_do_not_move(tmp_path: Path) -> None:
    deployment = _deployment(_folder(tmp_path, "mistral-small-4", _SMALL), arch="sm90", ep=8)
    moved = deployment.asking(enable_eplb=True)
    assert deployment.shape.model is not None and moved.shape.model is None
    assert "experts that move beside images" in moved.shape.unknown


def test_it_has_stages_without_images_alone(tmp_path: Path) -> None:
    text = {name: value for name, value in _SMALL.items() if name != "vision_encoder"}
    whole, alone = (
        _folder(tmp_path / one, "mistral-small-4", told) for one, told in (("a", _SMALL), ("b", text))
    )
    assert "has no pipeline stages" in str(never_starts(_deployment(whole, arch="sm90", tp=4, pp=2)))
    assert never_starts(_deployment(alone, arch="sm90", tp=4, pp=2)) is None


def test_a_params_json_that_is_missing_is_asked_for(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "Mistral-Small-4", {"model_type": "mistral3"}, "config.json")
    with pytest.raises(UsageError) as failure:
        _deployment(folder)
    assert f"{folder}/params.json is missing" in str(failure.value)
    assert "SGLang reads this one by the folder's name" in str(failure.value.remedy)
    with pytest.raises(UsageError) as failure:
        _deployment(Path("mistralai/Mistral-Small-4-119B-2603"))
    assert "hf download mistralai/Mistral-Small-4-119B-2603 params.json" in str(failure.value.remedy)


def test_by_a_config_json_sglang_finds_no_class(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.runtime.config_files import config_file

    text = config_file("mistral4")
    whole = {
        **{"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"]},
        **{"text_config": text, "vision_config": {"model_type": "pixtral"}, "dtype": "bfloat16"},
    }
    why = never_starts(_deployment(_folder(tmp_path, "ms4", whole, "config.json"), arch="sm90"))
    assert why is not None and "text_config is of mistral4, of which SGLang finds no class" in why
    told = {**text, "architectures": ["Mistral4ForCausalLM"], "dtype": "bfloat16"}
    alone = _deployment(_folder(tmp_path, "alone", told, "config.json"), arch="sm90")
    assert "runs transformers' own" in alone.shape.unknown

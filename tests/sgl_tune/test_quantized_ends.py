"""Methods that ask the checkpoint how it was quantized, in a file beside config.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgl_tune.deployment.models import presets
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.errors import UsageError
from tests.sgl_tune.ends import why_it_ends

_LLAMA = next(preset.config for preset in presets() if preset.name == "Llama-3.1-8B")
_SECTION = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}


@pytest.mark.parametrize(
    ("method", "sglang", "names"),
    [
        ("awq", "0.5.23", "quant_config.json or quantize_config.json"),
        ("awq_marlin", "0.5.23", "quantize_config.json"),
        ("gptq_marlin", "0.5.23", "quantize_config.json"),
        ("moe_wna16", "0.5.16", "quantize_config.json"),
        ("auto-round", "0.5.20", "quantization_config.json"),
        ("gptq", "0.5.16", "quantize_config.json"),
    ],
)
def test_a_plain_checkpoint_ends_there(method: str, sglang: str, names: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(_LLAMA))
    why = why_it_ends(model_path=str(tmp_path), quantization=method, sglang_version=sglang, dtype="float16")
    assert why is not None and why.endswith(f"no {names} lies beside it")


def test_one_that_config_json_tells_of_starts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**_LLAMA, "quantization_config": _SECTION}))
    assert why_it_ends(model_path=str(tmp_path), quantization="awq_marlin", arch="sm90") is None


@pytest.mark.parametrize(
    ("method", "file", "refused"),
    [
        ("awq", "quant_config.json", True),
        ("awq_marlin", "quant_config.json", False),
        ("gptq_marlin", "quantize_config.json", True),
    ],
)
def test_a_file_that_is_not_read_is_named(method: str, file: str, refused: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(_LLAMA))
    (tmp_path / file).write_text(json.dumps({"w_bit": 4, "q_group_size": 128, "zero_point": True}))
    asked = {"model_path": str(tmp_path), "arch": "sm90"}
    assert why_it_ends(**asked) is None, "who asks for no method is not told of a file"
    if refused:
        with pytest.raises(UsageError, match=f"--quantization {method}: SGLang reads in {file}"):
            why_it_ends(**asked, quantization=method)
    else:
        assert "lies beside it" in (why_it_ends(**asked, quantization=method) or "")


@pytest.mark.parametrize(
    ("method", "arch", "dtype", "sglang", "why"),
    [
        ("fp8", "sm90", "float32", "0.5.23", "--dtype float32: quantization fp8 takes float16 or bfloat16"),
        ("w4afp8", "sm90", "float16", "0.5.20", "--dtype float16: quantization w4afp8 takes bfloat16"),
        ("mxfp8", "sm89", "bfloat16", "0.5.23", "quantization mxfp8 needs sm100 at least, and this is sm89"),
        ("w4afp8", "sm89", "bfloat16", "0.5.23", "quantization w4afp8 needs sm90 at least, and this is sm89"),
        ("fp8", "sm89", "float16", "0.5.12", None),
    ],
)
def test_types_and_gpus_that_a_method_has_no_kernels_for(
    method: str, arch: str, dtype: str, sglang: str, why: str | None
) -> None:
    asked = {"model_path": "Llama-3.1-8B", "quantization": method, "arch": arch, "dtype": dtype}
    assert why_it_ends(**asked, sglang_version=sglang) == why


@pytest.mark.parametrize(("sglang", "ends"), [("0.5.12", True), ("0.5.13", False)])
def test_nvfp4_runs_by_marlin_since_0_5_13(sglang: str, ends: bool, tmp_path: Path) -> None:
    section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}
    (tmp_path / "config.json").write_text(json.dumps({**_LLAMA, "quantization_config": section}))
    why = why_it_ends(model_path=str(tmp_path), arch="sm90", sglang_version=sglang)
    assert why == ("quantization modelopt_fp4 needs sm100 at least, and this is sm90" if ends else None)


def test_a_file_in_fp8_that_names_no_scheme_ends(tmp_path: Path) -> None:
    section = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (tmp_path / "config.json").write_text(json.dumps({**_LLAMA, "quantization_config": section}))
    why = why_it_ends(model_path=str(tmp_path), arch="sm90")
    assert why == "quantization_config: activation_scheme is missing, and SGLang's fp8 asks for it"


def test_modelopts_fp8_is_not_told_what_is_plain_by_another_list(tmp_path: Path) -> None:
    section = {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    (tmp_path / "config.json").write_text(json.dumps({**_LLAMA, "quantization_config": section}))
    found = resolve_deployment(ServerFlags(model_path=str(tmp_path), arch="sm90"), environ={})
    assert "SGLang reads ignore there, and no other list" in found.shape.unknown

"""Methods that ask the checkpoint how it was quantized, in a file beside config.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgl_tune.errors import UsageError
from sgl_tune.deployment.models import presets
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
    why = why_it_ends(model_path=str(tmp_path), quantization=method, sglang_version=sglang, arch="sm90")
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

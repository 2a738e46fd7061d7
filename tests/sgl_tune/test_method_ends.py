"""Methods of quantization that one family's class ends at, and those that it takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import published_config
from tests.memory.quantized import SECTIONS
from tests.memory.served import held

_SOLAR, _K2 = "a/solar-pro-preview-from-memory", "a/k2-horizon-7b-from-memory"
_GPT_J, _SARVAM = "EleutherAI/gpt-j-6b", "a/sarvam-105b-from-its-classes"
_OCR, _LING = "deepseek-ai/DeepSeek-OCR", "a/ling-2.5-1t-in-fp8-blocks"
_MIXED = "a/k2-horizon-mova-36b-told-its-routers-parts"
_SCALES = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False}
_ROWS = {**SECTIONS["fp8 a row"], "ignore": []}
(_GROUP,) = _ROWS["config_groups"].values()
_MORE = {
    "int4 of keys": {**SECTIONS["int4"], "kv_cache_scheme": _SCALES},
    "fp8 of a head": {**_ROWS, "config_groups": {"all": {**_GROUP, "targets": ["Linear", "lm_head"]}}},
}
_NAMES, _ALONE = "tells fp8 no names of what runs as one", "takes weights in compressed-tensors alone"


def _served(
    folder: Path,
    name: str,
    section: str | None,
    flags: str = "",
    gpu: str = "H200",
    environ: Mapping[str, str] | None = None,
) -> Any:
    told = published_config(name)
    added = {} if section is None else {"quantization_config": {**SECTIONS, **_MORE}[section]}
    (folder / "config.json").write_text(json.dumps({**told, **added}))
    command = f"sglang serve --model-path {folder} --trust-remote-code --disable-radix-cache {flags}".split()
    return select_deployments(ServerFlags(gpu=gpu, sglang_version="0.5.23"), command, environ=environ or {})[
        0
    ]


@pytest.mark.parametrize(
    ("name", "section", "flags", "why"),
    [
        (_SOLAR, "fp8", "", _NAMES),
        (_SOLAR, "int4", "", "tells compressed-tensors no names"),
        (_SOLAR, "gptq", "", None),
        (_SOLAR, None, "--quantization fp8", None),
        (_K2, "fp8", "", _ALONE),
        (_K2, "modelopt fp8", "", f"{_ALONE}, and these are in modelopt_fp8"),
        (_K2, None, "--quantization fp8", _ALONE),
        (_K2, "int4", "", None),
        (_K2, "fp8 a row", "--pp-size 2", None),
        (_K2, "int4 of keys", "", "no place for the scales of keys"),
        (_K2, "int4 of keys", "--load-format dummy", None),
        (_K2, "fp8 of a head", "", None),
        (_K2, "fp8 of a head", "--pp-size 2", "leaves a quantized head to no other stage"),
        (_GPT_J, "awq", "--dtype half", "SGLang's GPT-J asks awq"),
        (_GPT_J, "awq", "--dtype half --load-format dummy", None),
        (_GPT_J, None, "--quantization fp8", "SGLang's GPT-J asks fp8 for scales of keys"),
        (_GPT_J, "fp8 a row", "", None),
        (_SARVAM, "int4", "--tp 8", "SGLang takes kv_b_proj of layer 0 apart"),
        (_MIXED, "int4", "", "takes no quantized weights where values are mixed"),
        (_OCR, "fp8", "", "multiplies by model.layers.1.mlp.experts as by plain matrices"),
        (_OCR, "awq", "", "packs the weights of model.layers.1.mlp.experts"),
        (
            "a/unlimited-ocr-of-deepseek-ocrs-sizes",
            "modelopt fp8",
            "--page-size 1",
            "multiplies by model.layers.1.mlp.experts",
        ),
        ("state-spaces/mamba-2.8b-hf", "modelopt fp8", "", None),
    ],
)
def test_a_class_ends_at_methods(
    name: str, section: str | None, flags: str, why: str | None, tmp_path: Path
) -> None:
    said = never_starts(_served(tmp_path, name, section, flags))
    assert said is None if why is None else said is not None and why in said


@pytest.mark.parametrize(
    ("gpu", "environ", "ends"),
    [
        ("H200", {}, False),
        ("B200", {}, True),
        ("GB300", {}, True),
        ("B200", {"SGLANG_ENABLE_JIT_DEEPGEMM": "0"}, False),
    ],
)
def test_ling_2_5_ends_where_deepgemm_has_other_scales_for_blocks(
    gpu: str, environ: Mapping[str, str], ends: bool, tmp_path: Path
) -> None:
    said = never_starts(_served(tmp_path, _LING, None, "--tp 8", gpu, environ))
    assert (said is not None and "matrices that Ling 2.5's class calls otherwise" in said) is ends


@pytest.mark.parametrize(
    ("name", "section", "flags", "bytes_held"),
    [
        (_SOLAR, "awq", "--dtype half", 11990476800),
        (_SOLAR, "gptq", "", 11998996480),
        (_SOLAR, None, "--quantization fp8", 44280064000),
        (_K2, "int4", "", 7688235264),
        (_K2, "fp8 a row", "", 11058192384),
        ("bigcode/starcoder", "awq", "--dtype half", 8587440128),
        ("bigcode/starcoder", "fp8", "--dtype half", 15872504768),
        (_GPT_J, "fp8 a row", "", 6469274112),
        ("facebook/opt-6.7b", "gptq", "", 3783032832),
    ],
)
def test_a_rank_holds_what_sglangs_class_does(
    name: str, section: str | None, flags: str, bytes_held: int, tmp_path: Path
) -> None:
    assert held(_served(tmp_path, name, section, flags))[0] == bytes_held


@pytest.mark.parametrize(
    ("name", "section", "said"),
    [
        ("openai-community/gpt2-medium", "fp8", "quantized weights of a checkpoint but in AWQ and GPTQ"),
        ("bigcode/starcoder", "int8", "quantized weights of a checkpoint but in AWQ and fp8 a tensor"),
        ("bigcode/starcoder", "gptq", "quantized weights of a checkpoint but in AWQ and fp8 a tensor"),
        ("facebook/opt-350m", "gptq", "quantized weights beside tables of another width than rows"),
        (_SARVAM, "fp8", "a quantized kv_b_proj"),
        (_SARVAM, None, "quantized weights but those of a checkpoint"),
    ],
)
def test_what_a_class_makes_otherwise_of_some_formats_is_named(
    name: str, section: str | None, said: str, tmp_path: Path
) -> None:
    found = _served(tmp_path, name, section, "" if section else "--quantization fp8")
    assert found.shape.model is None and f" does not go with {said}" in found.shape.unknown

"""What SGLang's classes cannot make of a format: their servers end while they load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from sgl_tune.keys.ways_to_start import way_to_start
from tests.memory.quantized import SECTIONS
from tests.runtime.families import make_reference
from tests.runtime.families.reference import served_json


def _why(folder: str, sglang: str, arch: str, *argv: str) -> str | None:
    flags = ServerFlags(arch=arch, sglang_version=sglang)
    command = ["sglang", "serve", "--model-path", folder, "--dtype", "bfloat16", *argv]
    return never_starts(select_deployments(flags, command, environ={})[0])


def _of_family(folder: Path, family: str, section: dict[str, Any]) -> str:
    told = served_json(make_reference(family))
    (folder / "config.json").write_text(json.dumps({**told, "quantization_config": section}))
    return str(folder)


_BESIDE_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic"}
_MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}


@pytest.mark.parametrize(
    ("family", "section", "sglang", "arch", "why"),
    [
        (
            "glm4_moe",
            SECTIONS["nvfp4"],
            "0.5.23",
            "sm100",
            "shared experts for a weight, which those in",
        ),
        ("glm4_moe", _BESIDE_BLOCKS, "0.5.23", "sm90", None),
        (
            "glm4_moe",
            {**_BESIDE_BLOCKS, "modules_to_not_convert": ["down_proj"]},
            "0.5.23",
            "sm90",
            "asks for blocks of fp8 in mlp.shared_experts.down_proj of layer 1, which is plain",
        ),
        ("deepseek_v3", _MODELOPT, "0.5.18", "sm90", "before 0.5.19 asks ModelOpt's fp8 of shared experts"),
        ("deepseek_v3", _MODELOPT, "0.5.19", "sm90", None),
        ("llama", SECTIONS["nvfp4"], "0.5.21", "sm90", "needs sm100 at least before 0.5.22: this is sm90"),
        ("llama", SECTIONS["nvfp4"], "0.5.22", "sm90", None),
        ("llama", SECTIONS["nvfp4 of weights"], "0.5.21", "sm100", "nvfp4 of weights alone"),
        ("qwen3_next", SECTIONS["nvfp4"], "0.5.23", "sm100", "in_proj_qkvz of layer 0 for a weight, which"),
        ("qwen3_next", SECTIONS["fp8"], "0.5.12", "sm90", "in_proj_qkvz of layer 0 in parts, each with a"),
        ("qwen3_next", SECTIONS["fp8 blocks"], "0.5.23", "sm90", None),
        ("minicpm3", SECTIONS["int4"], "0.5.22", "sm90", "takes kv_b_proj of layer 0 apart, and knows no"),
        ("minicpm3", SECTIONS["fp8"], "0.5.23", "sm90", None),
        ("stablelm", SECTIONS["fp8"], "0.5.12", "sm90", "StableLM has self_attn.q_proj of layer 0 plain"),
        ("olmo", SECTIONS["int4"], "0.5.23", "sm90", "OLMo 1 has self_attn.q_proj of layer 0 plain"),
        ("olmo", {**SECTIONS["fp8"], "modules_to_not_convert": ["self_attn"]}, "0.5.23", "sm90", None),
    ],
)
def test_what_a_class_cannot_make_of_a_format(
    family: str, section: dict[str, Any], sglang: str, arch: str, why: str | None, tmp_path: Path
) -> None:
    said = _why(_of_family(tmp_path, family, section), sglang, arch, "--disable-shared-experts-fusion")
    assert said is None if why is None else said is not None and why in said


_HALF = ["*in_proj_z"]


@pytest.mark.parametrize(
    ("sglang", "listed", "why"),
    [
        ("0.5.16", [], "has linear_attn.in_proj_qkv of layer 0 plain beside nvfp4, and the file has it"),
        ("0.5.16", ["*linear_attn*", "*self_attn*"], None),
        ("0.5.17", [], None),
        ("0.5.16", _HALF, "in_proj_z only some are excluded"),
        ("0.5.17", _HALF, "in_proj_z only some are excluded"),
    ],
)
def test_mixers_of_qwen_3_5_in_nvfp4(sglang: str, listed: list[str], why: str | None, tmp_path: Path) -> None:
    section = {**SECTIONS["modelopt nvfp4"], "ignore": ["lm_head", *listed]}
    said = _why(_of_family(tmp_path, "qwen3_5", section), sglang, "sm100")
    assert said is None if why is None else said is not None and why in said


def test_what_a_class_cannot_read_it_can_draw(tmp_path: Path) -> None:
    for family in ("qwen3_next", "olmo"):
        folder = _of_family(tmp_path, family, SECTIONS["fp8"])
        assert _why(folder, "0.5.23", "sm90", "--load-format", "dummy") is None


_NO_SHARED, _NO_ATTENTION = "-:.*shared_experts.*", "-:.*self_attn.*"


@pytest.mark.parametrize(
    ("sglang", "plain", "why"),
    [
        ("0.5.18", (), "asks shared experts for a weight, which those in gptq have not"),
        ("0.5.14", (_NO_SHARED,), "asks q_a_proj of layer 0 for a weight: those in gptq have none"),
        ("0.5.18", (_NO_SHARED,), "asks q_b_proj of layer 0 for a weight: those in gptq have none"),
        ("0.5.23", (_NO_SHARED,), "takes kv_b_proj of layer 0 apart, and knows no way of those in gptq"),
        ("0.5.14", (_NO_SHARED, _NO_ATTENTION), None),
        ("0.5.19", (_NO_ATTENTION,), None),
    ],
)
def test_what_deepseeks_class_asks_of_gptq(
    sglang: str, plain: tuple[str, ...], why: str | None, tmp_path: Path
) -> None:
    section = {**SECTIONS["gptq"], "dynamic": {one: {} for one in plain}}
    folder = _of_family(tmp_path, "deepseek_v3", section)
    said = _why(folder, sglang, "sm90", "--disable-shared-experts-fusion", "--quantization", "gptq_marlin")
    assert said is None if why is None else said is not None and why in said


@pytest.mark.parametrize(("method", "ends"), [("fp8", True), (None, False)])
def test_ears_of_gemma_4_are_plain(method: str | None, ends: bool, tmp_path: Path) -> None:
    folder = _of_family(tmp_path, "gemma4", {})
    said = _why(folder, "0.5.23", "sm90", *(("--quantization", method) if method else ()))
    assert ("ears that are quantized" in (said or "")) == ends


def test_two_things_told_of_what_runs_as_one_are_an_end(tmp_path: Path) -> None:
    section = {**_BESIDE_BLOCKS, "modules_to_not_convert": ["model.layers.1.mlp.shared_experts.gate_proj"]}
    said = _why(_of_family(tmp_path, "glm4_moe", section), "0.5.23", "sm90")
    assert said is not None and "only some are excluded" in said


@pytest.mark.parametrize(
    ("family", "section", "sglang", "argv", "way"),
    [
        ("deepseek_v3", _MODELOPT, "0.5.18", (), "SGLang 0.5.19, where no end of it is known"),
        ("llama", SECTIONS["nvfp4 of weights"], "0.5.20", (), "SGLang 0.5.22, where no end of it is known"),
        (
            "llama",
            {},
            "0.5.21",
            ("--quantization", "modelopt_fp8"),
            "leave --quantization out: no end of it is known then",
        ),
        ("qwen3_next", SECTIONS["fp8"], "0.5.16", (), "no server starts so: change what it names"),
    ],
)
def test_what_would_start_is_found_by_the_rules(
    family: str, section: dict[str, Any], sglang: str, argv: tuple[str, ...], way: str, tmp_path: Path
) -> None:
    folder, flags = _of_family(tmp_path, family, section), ServerFlags(arch="sm100", sglang_version=sglang)
    command = ["sglang", "serve", "--model-path", folder, "--disable-shared-experts-fusion", *argv]
    found = select_deployments(flags, command, environ={})[0]
    assert never_starts(found) is not None and way_to_start(found) == way

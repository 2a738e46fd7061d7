"""What transformers' classes make of files, of which SGLang then ends; and files' own classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import checkpoints
from tests.sgl_tune.ends import OWN_CLASS, served

_PUBLISHED = {one.name: one.config for one in checkpoints()}
_STEP, _LAGUNA, _MIXTRAL = (
    _PUBLISHED[name]
    for name in ("stepfun-ai/Step-3.5-Flash", "poolside/Laguna-XS.2", "a/mixtral-8x7b-of-whole-experts")
)
_ALIKE = {"attention_other_setting": {**_STEP["attention_other_setting"], "num_attention_heads": 64}}
_SLIDES = {"layer_types": ["sliding_attention"] * len(_STEP["layer_types"])}
_INSIDE = {
    "architectures": ["Step3p7ForConditionalGeneration"],
    "model_type": "step3p7",
    "text_config": _STEP,
    "vision_config": {"width": 96, "layers": 1, "heads": 8, "mlp_ratio": 2.0, "image_size": 28},
}
_WHY = "transformers tells Step 3.5's heads by layer"


@pytest.mark.parametrize(
    ("changes", "words", "release", "why"),
    [
        ({}, "", "0.5.21", None),
        ({}, "", "0.5.22", _WHY),
        ({}, "--trust-remote-code", "0.5.23", _WHY),
        (OWN_CLASS, "", "0.5.23", _WHY),
        (OWN_CLASS, "--trust-remote-code", "0.5.23", None),
        (_SLIDES, "", "0.5.23", _WHY),
        (_ALIKE, "", "0.5.23", None),
        (_INSIDE, "", "0.5.22", _WHY),
        ({**_INSIDE, **OWN_CLASS}, "--trust-remote-code", "0.5.22", None),
    ],
)
def test_heads_by_layer_end_a_start_since_0_5_22(
    changes: dict[str, Any], words: str, release: str, why: str | None, tmp_path: Path
) -> None:
    said = _why(tmp_path, {**_STEP, **changes}, f"--tp-size 8 {words}", release)
    assert said is None if why is None else said is not None and why in said


_PLAIN_ROPES = {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in _LAGUNA["rope_parameters"]}


@pytest.mark.parametrize(
    ("changes", "release", "ends"),
    [
        ({}, "0.5.12", False),
        ({}, "0.5.13", True),
        ({}, "0.5.14", True),
        ({}, "0.5.15", False),
        ({"rope_parameters": _PLAIN_ROPES}, "0.5.14", False),
    ],
)
def test_a_yarn_by_kind_of_layer(changes: dict[str, Any], release: str, ends: bool, tmp_path: Path) -> None:
    said = _why(tmp_path, {**_LAGUNA, **changes}, "", release)
    assert said is not None and "a yarn by kind of layer" in said if ends else said is None


@pytest.mark.parametrize(
    ("changes", "release", "ends"),
    [
        ({}, "0.5.13", True),
        ({}, "0.5.14", False),
        ({"head_dim": 128}, "0.5.12", False),
        ({"architectures": ["MixtralForCausalLM"]}, "0.5.12", False),
    ],
)
def test_a_mixtral_of_no_told_width(
    changes: dict[str, Any], release: str, ends: bool, tmp_path: Path
) -> None:
    said = _why(tmp_path, {**_MIXTRAL, **changes}, "--tp-size 2", release)
    assert said is not None and said.startswith("head_dim is missing") if ends else said is None


_FLASH, _HY_4 = (_PUBLISHED[f"a/{name}-as-its-classes-have-it"] for name in ("glm-5.3-flash", "hy4-preview"))
_POOLED = {**_FLASH["text_config"], "index_kpool": 4}  # pages that divide what is between kept states
_INDEXED, _PLAIN = "indexed_attention", "full_attention"


def _by_name(config: dict[str, Any], name: str) -> dict[str, Any]:
    """The layers with an indexer are told as of that kind."""
    told = [one if one == "linear_attention" else name for one in config["layer_types"]]
    return {**config, "layer_types": told}


@pytest.mark.parametrize(
    ("config", "release", "known"),
    [
        (_FLASH | {"text_config": _POOLED}, "0.5.20", _PLAIN),
        (_FLASH | {"text_config": _POOLED}, "0.5.21", _PLAIN),
        (_FLASH | {"text_config": _POOLED}, "0.5.22", ""),
        (_FLASH | {"text_config": _by_name(_POOLED, _PLAIN)}, "0.5.20", ""),
        (_HY_4, "0.5.20", ""),
        (_by_name(_HY_4, _INDEXED), "0.5.21", "deepseek_sparse_attention"),
        (_by_name(_HY_4, _INDEXED), "0.5.22", ""),
    ],
)
def test_the_name_of_layers_with_an_indexer(
    config: dict[str, Any], release: str, known: str, tmp_path: Path
) -> None:
    said = _why(tmp_path, config, "--tp-size 8", release)
    assert said == (
        f"layer_types names {_INDEXED}, which SGLang knows as {known} alone before 0.5.22" if known else None
    )


def _why(folder: Path, config: dict[str, Any], words: str, release: str) -> str | None:
    return never_starts(served(folder, config, words, release, "H200"))

"""Random formats of quantized checkpoints, of small groups, and random lists of what stays plain."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from tests.memory.quantized import SECTIONS

_GROUPS = (16, 32)
_BLOCKS = ([16, 16], [32, 32])
_FORMATS = tuple(SECTIONS)


def section_of(names: Sequence[str], dice: random.Random) -> dict[str, Any]:
    """`names`: of the tensors that a file has of its model."""
    section = _small(SECTIONS[dice.choice(_FORMATS)], dice)
    return {**section, **_listed(section["quant_method"], names, dice)}


def _small(section: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    told = dict(section)
    if "group_size" in told and told["quant_method"] != "modelopt":
        told["group_size"] = dice.choice(_GROUPS)
    if "weight_block_size" in told:
        told["weight_block_size"] = dice.choice(_BLOCKS)
    if told["quant_method"] == "compressed-tensors":
        (group,) = told["config_groups"].values()
        weights = dict(group["weights"])
        if weights["strategy"] == "group":
            weights["group_size"] = dice.choice(_GROUPS)
        if weights["strategy"] == "block":
            weights["block_structure"] = dice.choice(_BLOCKS)
        told["config_groups"] = {"group_0": {**group, "weights": weights}}
    return told


def _listed(method: str, names: Sequence[str], dice: random.Random) -> dict[str, Any]:
    """One layer, one part of each, one kind of parts, or nothing beside the head."""
    matrices = [name.removesuffix(".weight") for name in names if name.endswith(".weight")]
    layers = sorted({found[0] for one in matrices if (found := re.match(r".*?\.\d+", one))})
    some = dice.choice([one for one in matrices if "." in one])
    tail, part = some.rpartition(".")[2], some.rpartition(".")[0]
    kind = dice.choice(("none", "none", "matrix", "layer", "part", "tail", "tail"))
    exact = {"matrix": some, "layer": dice.choice(layers), "part": part}.get(kind)
    if method == "gptq":
        meant = tail if exact is None else exact.replace(".", r"\.")
        return {} if kind == "none" else {"dynamic": {f"-:.*{meant}.*": {}}}
    around = {"compressed-tensors": "re:.*{}.*", "modelopt": "*{}*"}.get(method, "{}")
    meant = around.format(tail) if kind == "tail" else exact
    if method == "modelopt" and exact is not None:
        meant = f"{exact}*"
    if method == "compressed-tensors" and kind in ("layer", "part"):
        meant = around.format(exact)
    key = "ignore" if method in ("compressed-tensors", "modelopt") else "modules_to_not_convert"
    return {key: ["lm_head", *([] if kind == "none" or meant is None else [meant])]}

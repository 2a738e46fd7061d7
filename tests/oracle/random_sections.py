"""Random formats of quantized checkpoints, of small groups, and random lists of what stays plain."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from tests.memory.quantized import SECTIONS

_GROUPS = (16, 32)
_MIXED, _ALONE = 0.15, 0.1
_BLOCKS = ([16, 16], [32, 32])
_FORMATS = tuple(SECTIONS)
# Of which SGLang has no scheme, or another one.
_SELDOM = (
    {"symmetric": False},
    {"dynamic": True},
    {"actorder": "static"},
    {"group_size": 16},
    {"num_bits": 6},
)
_OTHER_FORMATS = ("mixed-precision", "naive-quantized", "pack-quantized", None)
_RARE = 0.15
_MIXED_SINCE = {"FP8": 12, "NVFP4": 12, "W4A16_NVFP4": 15, "MXFP8": 17, "FP8_BLOCK_SCALES": 21}
_NEVER_MIXED = ("norm", "embed", "lm_head", "conv1d", "router", ".gate.", "bias", "visual", "vision", "tower")


def section_of(
    names: Sequence[str], dice: random.Random, release: str = "0.5.23", of: str | None = None
) -> dict[str, Any]:
    """`names`: of the tensors that a file has of its model; `of`: "mixed", "mxfp8", or None for any."""
    if of == "mxfp8":
        return _in_mxfp8(names, dice)
    if of == "mixed" or (of is None and dice.random() < _MIXED):
        return mixed_of(names, dice, release)
    section = _small(SECTIONS[dice.choice(_FORMATS)], dice)
    return {**section, **_listed(section["quant_method"], names, dice)}


def mixed_of(names: Sequence[str], dice: random.Random, release: str) -> dict[str, Any]:
    """Each part of a layer in an algorithm, or plain; experts of all layers in one, or of some plain."""
    number = int(release.rpartition(".")[2])
    known = [None, *(one for one, since in _MIXED_SINCE.items() if number >= since)]
    matrices = [name.removesuffix(".weight") for name in names if name.endswith(".weight")]
    experts = dict.fromkeys(found[1] for name in names if (found := re.match(r"(.*\.experts)\.\D", name)))
    matrices = [one for one in matrices if not any(part in f"{one}." for part in _NEVER_MIXED)]
    matrices += [f"{one}.0.{part}_proj" for one in experts for part in ("up", "down")]
    chosen: dict[str, str | None] = {}
    layers: dict[str, dict[str, Any]] = {}
    for one in matrices:
        part = re.sub(r"\.\d+\.", ".", one).rpartition(".")[0]
        part = f"{part} {one}" if dice.random() < _ALONE and "experts" not in part else part
        algorithm = chosen.setdefault(part, dice.choice(known))
        if algorithm is not None:
            layers[one] = {"quant_algo": algorithm} | ({"group_size": 16} if "NVFP4" in algorithm else {})
            layers[one] |= {"group_size": 32} if "BLOCK" in algorithm else {}
    if not layers:
        layers[matrices[0]] = {"quant_algo": "FP8"}
    told = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    told |= {"kv_cache_scheme": None, "ignore": ["lm_head"]}
    if dice.random() < _ALONE:
        layers["lm_head"] = {"quant_algo": dice.choice([one for one in known if one and "BLOCK" not in one])}
        told["ignore"] = []
    return told


def _in_mxfp8(names: Sequence[str], dice: random.Random) -> dict[str, Any]:
    """ModelOpt's, of which SGLang takes the first of two lists."""
    (listed,) = _listed("fp8", names, dice).values()
    if dice.random() < _ALONE:
        listed = [f"{one}*" for one in listed]
    told = {"quant_method": "modelopt", "quant_algo": "MXFP8", "group_size": 32}
    lists = {"exclude_modules": listed, "ignore": ["lm_head", "nothing"]}
    return told | (lists if dice.random() < _ALONE else {dice.choice([*lists]): listed})


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
        if dice.random() < _RARE:
            weights |= dice.choice(_SELDOM)
        if dice.random() < _RARE:
            told["format"] = dice.choice(_OTHER_FORMATS)
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
    head = [] if method == "modelopt" and dice.random() < _ALONE else ["lm_head"]
    return {key: [*head, *([] if kind == "none" or meant is None else [meant])]}

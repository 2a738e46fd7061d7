"""MOSS-VL's tower: Qwen3-VL's, of which one MLP joins all that is taken out of it (srt/models/moss_vl.py)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import Weights, block, column, layer_norm, layers, named, row, whole
from runtime.server.errors import Unsupported

_TAKEN = "deepstack_visual_indexes"


def moss_vl(hf: Mapping[str, Any], text_width: int) -> Weights:
    v = Section(hf)
    if v.get(_TAKEN) is None:
        raise Unsupported(f"{v.where}{_TAKEN} is missing: what it is then, the checkpoint's own class says")
    width, out = v.size("hidden_size"), v.size("out_hidden_size")
    if out != text_width:
        raise Unsupported(f"{v.where}out_hidden_size is {out}: its text is {text_width} wide")
    taken = 1 + v.count_of(_TAKEN)
    joined = taken * width * v.size("spatial_merge_size") ** 2
    frames, side = v.size("temporal_patch_size"), v.size("patch_size")
    tower = chain(
        whole("patch_embed.proj.weight", width, v.size("in_channels"), frames, side, side),
        whole("patch_embed.proj.bias", width),
        whole("pos_embed.weight", v.size("num_position_embeddings"), width),
        layers("blocks", v.size("depth"), block(width, v.size("num_heads"), v.size("intermediate_size"))),
        layers("merger.norms", taken, layer_norm("norm", width)),
        column("merger.linear_fc1", joined, joined),
        row("merger.linear_fc2", out, joined),
    )
    yield from named("visual", tower)
    yield from whole("separator_token", out)

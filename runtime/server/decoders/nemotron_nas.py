"""Llama-Nemotron, a Llama cut by a search: layers attend or not, with MLPs of their own width or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runtime.server.bounds import MODEL, check_size
from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import TAKEN_AS_SILU, heads, model
from runtime.server.decoders.rope import as_stretched
from runtime.server.errors import ConfigError, Unsupported

_ROWS = 256  # an MLP's width is a multiple of
_OF_ATTENTION = ("no_op", "n_heads_in_group")
_OF_MLPS = ("no_op", "ffn_mult", "intermediate_size")
_SAYS_NOTHING = {"hidden_act": TAKEN_AS_SILU, "gated": (True,)}


def _nemotron_nas(f: Fields) -> ModelConfig:
    for name in ("mlp_bias", "bias", "qkv_bias"):
        f.only(name, False)
    f.only("rope_is_neox_style", True)
    for name in ("intermediate_size", "num_key_value_heads"):
        f.get(name)  # which blocks tell
    blocks, hidden = _blocks(f), f.size("hidden_size")
    groups = [_group(f, block["attention"], layer) for layer, block in enumerate(blocks)]
    widths = [_width(f, block["ffn"], layer, hidden) for layer, block in enumerate(blocks)]
    shared = next((group for group in groups if group), None)
    if shared is None:
        raise Unsupported("config.json: no layer of block_configs attends: SGLang finds no count of KV heads")
    bias, count = f.flag("attention_bias"), f.size("num_attention_heads")
    kinds = {group: "full" if group == shared else f"full of {group}" for group in groups if group}
    attention = {
        kind: heads(f, bias=bias, output_bias=bias, kv_count=count // group) for group, kind in kinds.items()
    }
    as_stretched(f, attention["full"].rope)
    return model(
        f,
        attention,
        [kinds.get(group, "none") for group in groups],
        ["dense" if width else "none" for width in widths],
        intermediate_size=max(widths),
        mlp_sizes=tuple(widths),
        idle_keys=True,
    )


def _blocks(f: Fields) -> Sequence[Mapping[str, Any]]:
    listed, layers = f.get("block_configs"), f.size("num_hidden_layers")
    if not isinstance(listed, list) or len(listed) != layers:
        raise ConfigError(f"config.json: block_configs is {repr(listed)[:60]}: a list of {layers} is needed")
    for layer, block in enumerate(listed):
        whole = isinstance(block, Mapping) and all(
            isinstance(block.get(part), Mapping) for part in ("attention", "ffn")
        )
        if not whole:
            raise ConfigError(f"config.json: block_configs: {layer} is {repr(block)[:60]}: no block")
        _alone(f, block, layer, ("attention", "ffn"))
    return listed


def _group(f: Fields, told: Mapping[str, Any], layer: int) -> int:
    """How many heads ask one for keys; 0 where no head does."""
    if _is_left_out(told, layer):
        return 0
    _alone(f, told, layer, _OF_ATTENTION)
    group = f.checked_size("n_heads_in_group", told.get("n_heads_in_group"))
    if f.size("num_attention_heads") % group:
        raise ConfigError(f"config.json: n_heads_in_group is {group}: it does not divide the heads")
    return group


def _width(f: Fields, told: Mapping[str, Any], layer: int, hidden: int) -> int:
    if _is_left_out(told, layer):
        return 0
    _alone(f, told, layer, _OF_MLPS)
    share = checked_number("ffn_mult", told.get("ffn_mult"))
    width = -(-int(2 * share * hidden / 3) // _ROWS) * _ROWS
    if width < 1:
        raise ConfigError(f"config.json: ffn_mult is {share}: it must be above 0")
    check_size("config.json: the width that ffn_mult tells", width, MODEL["intermediate_size"])
    if told.get("intermediate_size") not in (None, width):
        f.cannot(f"intermediate_size of layer {layer} is not the {width} that SGLang makes of its ffn_mult")
    return width


def _is_left_out(told: Mapping[str, Any], layer: int) -> bool:
    value = told.get("no_op")
    if not isinstance(value, bool):
        raise ConfigError(f"config.json: block_configs: no_op of {layer} is {repr(value)[:60]}")
    return value


def _alone(f: Fields, told: Mapping[str, Any], layer: int, read: Sequence[str]) -> None:
    """What else is told says that there is none of it."""
    for name, value in told.items():
        if name not in read and value not in (None, False, 0, *_SAYS_NOTHING.get(name, ())):
            f.cannot(f"{str(name)[:60]} of layer {layer} is {repr(value)[:60]}, which SGLang does not read")


FAMILIES = (
    Family(
        "nemotron-nas",
        _nemotron_nas,
        {"max_position_embeddings": 2048, "rms_norm_eps": 1e-6},
    ),
)

"""Granite 4: Mamba-2 in most layers, attention that turns nothing in some, an MLP beside the experts."""

from __future__ import annotations

import math
from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.granite import COMMON, multipliers
from runtime.server.decoders.parts import everywhere, heads, model, routed
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig
from runtime.server.recurrent import Mamba2Config
from runtime.server.tensor_names import ServedNames, TensorNames

_MIXERS = {"linear_attention": "recurrent", "mamba": "recurrent"}
_MIXERS |= {"full_attention": "full", "attention": "full"}
_NO_LIMIT = (math.inf, "Infinity", {"__float__": "Infinity"})
_NAMES = TensorNames(
    recurrent="mamba",
    shared="shared_mlp",
    shared_in_mlp=False,
    gate_up="input_linear",
    down="output_linear",
    served=ServedNames(((r"\.mamba\.", ".mixer."),), experts=("input_linear", "output_linear")),
)


def _granitemoehybrid(f: Fields) -> ModelConfig:
    layers = f.size("num_hidden_layers")
    spelled = f.spelled("layer_types", "layers_block_type")
    mixers = f.per_layer(spelled, layers, _MIXERS) or everywhere(f, "recurrent")
    if "full" not in mixers:
        f.cannot("no layer has attention: this runtime has no server of states alone")
    shared, has_experts = f.size("shared_intermediate_size"), f.count("num_local_experts") > 0
    moe = routed(f, "intermediate_size", shared_intermediate_size=shared) if has_experts else None
    found = model(
        f,
        {"full": _attention(f)},
        mixers,
        everywhere(f, "moe" if has_experts else "dense"),
        recurrent=mamba(f, f.size("mamba_expand") * f.size("hidden_size")) if "recurrent" in mixers else None,
        moe=moe,
        names=_NAMES if has_experts else replace(_NAMES, mlp="shared_mlp"),
        multipliers=multipliers(f),
    )
    return found if has_experts else replace(found, intermediate_size=shared)


def _attention(f: Fields) -> AttentionConfig:
    bias = f.flag("attention_bias")
    turned = heads(f, scale=float(f.number("attention_multiplier")), bias=bias, output_bias=bias)
    f.only("position_embedding_type", "rope", "nope")
    return turned if f.get("position_embedding_type") == "rope" else replace(turned, rope=None)


def mamba(f: Fields, inner: int) -> Mamba2Config:
    without_step_limits(f)
    count = f.size("mamba_n_heads")
    width = inner // count if f.get("mamba_d_head") == "auto" else f.size("mamba_d_head")
    if count * width != inner:
        raise ConfigError(f"config.json: mamba_n_heads is {count}: heads of {width} are not {inner} together")
    return Mamba2Config(
        num_heads=count,
        head_dim=width,
        num_groups=f.size("mamba_n_groups"),
        state_size=f.size("mamba_d_state"),
        conv_kernel=f.size("mamba_d_conv"),
        conv_bias=f.flag("mamba_conv_bias"),
        bias=f.flag("mamba_proj_bias"),
        least_step=0.0,
        chunk=f.size("mamba_chunk_size"),
    )


def without_step_limits(f: Fields) -> None:
    limits = f.get("time_step_limit")
    told = [*limits] if isinstance(limits, list) else limits
    if told is not None and told not in [[0, one] for one in _NO_LIMIT]:
        f.cannot(f"time_step_limit is {repr(limits)[:60]}: this runtime computes steps of any size")


FAMILIES = (
    Family(
        "granitemoehybrid",
        _granitemoehybrid,
        {
            **COMMON,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 1024,
            "mamba_n_heads": 128,
            "mamba_n_groups": 1,
            "mamba_d_state": 256,
            "mamba_d_head": "auto",
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_chunk_size": 256,
            "mamba_conv_bias": True,
        },
    ),
)

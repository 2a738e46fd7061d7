"""Falcon-H1: attention and Mamba-2 beside each other in every layer, each with multipliers of its own."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.granite_hybrid import mamba
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, Multipliers
from runtime.server.recurrent import Mamba2Config
from runtime.server.tensor_names import ServedNames, TensorNames

# falcon_h1.py gives its attention no name, and its mixers no method; its head is float32.
_SERVED = ServedNames(
    ((r".*\.self_attn\..*", ""), (r"\.feed_forward\.", ".mlp.")),
    plain=("mamba.in_proj", "mamba.out_proj", "lm_head"),
)
_NAMES = TensorNames(norm="model.final_layernorm", recurrent="mamba", mlp="feed_forward", served=_SERVED)


def _falcon_h1(f: Fields) -> ModelConfig:
    _check(f)
    _check_rope(f)
    return model(
        f,
        {"full": _attention(f)},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        norms="feed",
        names=_NAMES,
        recurrent=_mamba(f),
        recurs_beside=True,
        head_in_fp32=True,
        multipliers=_multipliers(f),
    )


def _check(f: Fields) -> None:
    """srt/models/falcon_h1.py makes no biases of attention and of MLPs, both of a mixer by one flag, and
    opens before it norms; srt/configs/falcon_h1.py has kinds of layers of its own."""
    f.only("attention_bias", False)
    f.only("mlp_bias", False)
    for name in ("layer_types", "layers_block_type"):
        if f.has(name):
            f.cannot(f"{name}: SGLang's config class ends at it, as its layers are all of one kind")
    inward, outward = f.flag("mamba_proj_bias"), f.flag("projectors_bias")
    if inward != outward:
        f.cannot(f"projectors_bias is {outward}: SGLang reads mamba_proj_bias, which is {inward}")
    norms, first = f.flag("mamba_rms_norm"), f.flag("mamba_norm_before_gate")
    if norms and first:
        f.cannot("mamba_norm_before_gate is True: this runtime norms what a gate has opened, as SGLang does")


def _check_rope(f: Fields) -> None:
    told = f.section("rope_scaling") or f.section("rope_parameters")
    if told.get("rope_theta") is None and not f.has("rope_theta"):
        f.cannot("rope_theta is missing: SGLang takes 100000, transformers 10000")


def _attention(f: Fields) -> AttentionConfig:
    return heads(f, key_scale=f.number("key_multiplier"), idle_norms=True)


def _mamba(f: Fields) -> Mamba2Config:
    plain = mamba(f, f.size("mamba_d_ssm", f.size("mamba_expand") * f.size("hidden_size")))
    return replace(plain, is_normed=f.flag("mamba_rms_norm"), scales=_numbers(f, "ssm_multipliers", 5))


def _multipliers(f: Fields) -> Multipliers:
    gates, answer = _numbers(f, "mlp_multipliers", 2)
    return Multipliers(
        embedding=f.number("embedding_multiplier"),
        logits=f.number("lm_head_multiplier"),
        attention=(f.number("attention_in_multiplier"), f.number("attention_out_multiplier")),
        recurrence=(f.number("ssm_in_multiplier"), f.number("ssm_out_multiplier")),
        mlp=(gates, answer),
    )


def _numbers(f: Fields, name: str, count: int) -> tuple[float, ...]:
    told = f.get(name)
    if told is None:
        return (1.0,) * count
    if not isinstance(told, list) or len(told) != count:
        raise ConfigError(f"config.json: {name} is {repr(told)[:60]}: a list of {count} numbers is needed")
    return tuple(checked_number(name, one) for one in told)


_ONES = dict.fromkeys(
    (
        *("embedding_multiplier", "lm_head_multiplier", "key_multiplier"),
        *("attention_in_multiplier", "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier"),
    ),
    1.0,
)
_DEFAULTS = {
    "vocab_size": 128000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "mamba_d_ssm": 1024,
    "mamba_n_heads": 128,
    "mamba_d_head": "auto",
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 256,
    "mamba_conv_bias": True,
    "mamba_norm_before_gate": True,
    **_ONES,
}

FAMILIES = (Family("falcon_h1", _falcon_h1, _DEFAULTS),)

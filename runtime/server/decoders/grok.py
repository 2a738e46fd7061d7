"""Grok 1 and 2: capped scores that grow with a query's position, norms at either end of each answer, experts
by a gelu, beside an MLP where there is one.

transformers has no class of it, and its files are another's: what their fields mean is told by
srt/models/grok.py, which is made for their architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MoEConfig, Multipliers, RopeConfig
from runtime.server.tensor_names import TensorNames

NAME = "grok"
ARCHITECTURES = ("Grok1ForCausalLM", "Grok1ModelForCausalLM")
_ROUTER_CAP, _THETA, _MOST_CHOSEN = 30.0, 10000.0, 2
_BOTH = 2**-0.5  # of what experts and the MLP beside them answer
# Whose class fills in what a file leaves out, otherwise than srt/models/grok.py.
_FILLED_IN = "mixtral"
_NAMES = TensorNames(shared="mlp", shared_in_mlp=False)


def _grok(f: Fields) -> ModelConfig:
    _check(f)
    cap = f.number("final_logit_softcapping", 0.0)
    read = model(
        f,
        {"full": _attention(f)},
        everywhere(f, "full"),
        everywhere(f, "moe"),
        intermediate_size=f.size("intermediate_size"),
        tie_word_embeddings=False,
        norms="flanked",
        activation="gelu",
        moe=_routed(f),
        multipliers=Multipliers(
            embedding=f.number("embedding_multiplier_scale"),
            logits=f.number("output_multiplier_scale"),
            logit_cap=cap if cap > 0 else None,
        ),
        names=_NAMES,
    )
    return replace(read, model_type=NAME)


def _check(f: Fields) -> None:
    f.only("tie_word_embeddings", False)
    f.only("attn_logit_softcapping_method", "tanh")
    f.only("router_logit_softcapping", _ROUTER_CAP, int(_ROUTER_CAP))
    for name in ("replicate_lm_head", "replicate_embedding"):
        f.only(name, False)
    for name in ("rope_type", "rope_scaling"):
        f.only(name)
    if f.tells("context_len") and f.get("context_len") != f.get("max_position_embeddings"):
        f.cannot("context_len is another than max_position_embeddings: SGLang reads both")
    if f.get("model_type") == _FILLED_IN:
        for name in ("head_dim", "rope_theta"):
            if not f.tells(name):
                f.cannot(f"{name} is missing: another's class of {_FILLED_IN} fills it in")


def _attention(f: Fields) -> AttentionConfig:
    width, cap = f.size("head_dim"), f.number("attn_logit_softcapping")
    return heads(
        f,
        kv_count=f.size("num_key_value_heads"),
        width=width,
        rope=_rope(f, width),
        score_cap=cap if cap > 0 else None,
        score_growth=_growth(f),
    )


def _growth(f: Fields) -> int | None:
    length = f.get("attn_temperature_len")
    if type(length) is not int:
        raise ConfigError(
            f"config.json: attn_temperature_len is {repr(length)[:60]}: a whole number is needed"
        )
    if length == 1:
        f.cannot("attn_temperature_len is 1: SGLang divides by its logarithm")
    return length if length > 1 else None


def _rope(f: Fields, width: int) -> RopeConfig:
    turned = width // 2 if f.flag("rope_rotate_half_dims") else width
    if turned % 2:
        f.cannot(f"head_dim is {width}: {turned} of its values are no pairs")
    theta = int(_theta(f))
    if theta < 1:
        raise ConfigError(f"config.json: rope_theta is {theta}: it must be 1 at least")
    parameters: Mapping[str, Any] = {"rope_type": "default", "rope_theta": theta}
    return RopeConfig(turned, theta, f.size("max_position_embeddings"), parameters=parameters)


def _theta(f: Fields) -> float:
    """Of the file, or else of a section, of which SGLang reads nothing else."""
    section = f.section("rope_parameters")
    for name in section.keys() - {"rope_theta"}:
        if (name, section[name]) != ("rope_type", "default"):
            f.cannot(f"rope_parameters has {name[:60]}: SGLang reads its rope_theta alone")
    if f.tells("rope_theta") or not section:
        return f.number("rope_theta", _THETA)
    if section.get("rope_theta") is None:
        f.cannot("rope_parameters has no rope_theta: SGLang reads it there")
    return checked_number("rope_parameters: rope_theta", section.get("rope_theta") or _THETA)


def _routed(f: Fields) -> MoEConfig:
    experts, chosen = f.size("num_local_experts"), f.size("num_experts_per_tok")
    if experts & (experts - 1):
        f.cannot(f"num_local_experts is {experts}: SGLang's kernel of its router takes powers of two")
    if chosen > _MOST_CHOSEN:
        f.cannot(f"num_experts_per_tok is {chosen}: SGLang's kernel of its router chooses two at most")
    beside = f.flag("residual_moe")
    inner = "moe_intermediate_size" if f.has("moe_intermediate_size") else "intermediate_size"
    return MoEConfig(
        num_experts=experts,
        top_k=chosen,
        intermediate_size=f.size(inner),
        shared_intermediate_size=f.size("intermediate_size") if beside else 0,
        renormalize=False,
        router_in_fp32=True,
        router_cap=_ROUTER_CAP,
        together=_BOTH if beside else 1.0,
        keeps_rows=True,
    )


FAMILIES = (
    Family(
        NAME,
        _grok,
        {
            "head_dim": 128,
            "attn_logit_softcapping": 30.0,
            "attn_logit_softcapping_method": "tanh",
            "attn_temperature_len": -1,
            "rope_theta": None,
        },
    ),
)

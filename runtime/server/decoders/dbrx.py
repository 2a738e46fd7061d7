"""DBRX: norms by a mean, one clipped matrix of queries, keys and values, and experts in every layer.

srt/configs/dbrx.py has sections of its attention and of its experts, and the usual names of sizes, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.layer_config import AttentionConfig, MoEConfig
from runtime.server.tensor_names import ServedNames, TensorNames

_EPS = 1e-5  # of every norm, in either class
_THETA = 10000.0
_USUAL = {
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "max_seq_len": "max_position_embeddings",
}
_ATTENTION: Mapping[str, Any] = {"clip_qkv": None, "kv_n_heads": 1, "rope_theta": _THETA}
_EXPERTS: Mapping[str, Any] = {
    "ffn_hidden_size": 3584,
    "moe_num_experts": 4,
    "moe_top_k": 1,
    "moe_normalize_expert_weights": 1.0,
    "uniform_expert_assignment": False,
}
_NAMES = TensorNames(
    layers="transformer.blocks",
    embedding="transformer.wte",
    norm="transformer.norm_f",
    attention="norm_attn_norm.attn",
    packed_qkv="Wqkv",
    attention_out="out_proj",
    mlp="ffn",
    served=ServedNames(plain=("lm_head",), plain_experts=True),
)


def _dbrx(f: Fields) -> ModelConfig:
    f.only("tie_word_embeddings", False)
    told = _section(f, "attn_config", _ATTENTION)
    own = Fields({**_as_usual(f), "rope_theta": _theta(f, told)}, {})
    own.obstacles = f.obstacles
    moe = _routed(_section(f, "ffn_config", _EXPERTS))
    return model(
        own,
        {"full": _attention(f, own, told)},
        everywhere(own, "full"),
        everywhere(own, "moe"),
        moe=moe,
        intermediate_size=moe.intermediate_size,
        activation="silu",
        rms_eps=_EPS,
        norms="nested",
        mean_norms=True,
        names=_NAMES,
    )


def _section(f: Fields, name: str, defaults: Mapping[str, Any]) -> Fields:
    """What it cannot is named with what the file cannot."""
    found = Fields(f.section(name), defaults)
    found.obstacles = f.obstacles
    return found


def _as_usual(f: Fields) -> dict[str, Any]:
    """By the names that sizes of other families have."""
    found = {usual: f.size(f.spelled(own, usual)) for own, usual in _USUAL.items()}
    for own, usual in _USUAL.items():
        if f.tells(usual) and f.get(usual) != found[usual]:
            f.cannot(f"{usual} is {repr(f.get(usual))[:60]} beside {own}, which is {found[usual]}")
    return {"model_type": f.get("model_type"), "vocab_size": f.size("vocab_size"), **found}


def _attention(f: Fields, own: Fields, told: Fields) -> AttentionConfig:
    hidden, count = own.size("hidden_size"), own.size("num_attention_heads")
    kv_count = told.size("kv_n_heads")
    if hidden % count:
        f.cannot(f"d_model is no multiple of n_heads, which is {count}")
    f.only("num_key_value_heads", kv_count)
    f.only("head_dim", hidden // count)
    return heads(own, kv_count=kv_count, clip=told.positive_or_none("clip_qkv"))


def _theta(f: Fields, told: Fields) -> float:
    """SGLang's, of its section; transformers reads the one that other families have."""
    theta = told.number("rope_theta")
    if theta != int(theta):
        f.cannot(f"attn_config: rope_theta is {theta}: SGLang takes its whole part")
    f.only("rope_scaling")
    section = f.section("rope_parameters")
    kind = section.get("rope_type", "default")
    if kind != "default":
        f.cannot(f"rope_type is {repr(kind)[:60]}: SGLang stretches no rope of this family")
    for other in (f.get("rope_theta"), section.get("rope_theta")):
        if other is not None and checked_number("rope_theta", other) != theta:
            f.cannot(f"rope_theta is {other}: SGLang reads that of attn_config, which is {theta}")
    return theta


def _routed(told: Fields) -> MoEConfig:
    act, share = told.section("ffn_act_fn").get("name", "silu"), told.get("moe_normalize_expert_weights")
    if act != "silu":
        told.cannot(f"ffn_act_fn is {repr(act)[:60]}: this runtime computes 'silu'")
    if share != 1:
        told.cannot(f"moe_normalize_expert_weights is {repr(share)[:60]}: SGLang's shares sum to one")
    told.only("uniform_expert_assignment", False)
    return MoEConfig(
        num_experts=told.size("moe_num_experts"),
        top_k=told.size("moe_top_k"),
        intermediate_size=told.size("ffn_hidden_size"),
    )


FAMILIES = (
    Family(
        "dbrx",
        _dbrx,
        {"d_model": 2048, "n_heads": 16, "n_layers": 24, "max_seq_len": 2048, "vocab_size": 32000},
    ),
)

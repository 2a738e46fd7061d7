"""dots.note: latents of two sizes, behind windows in some layers, each answer behind a gate of the first
matrix; experts behind a few dense layers, and an indexer where a file tells one.

transformers has no class of it: fields are those of SGLang's srt/configs/dots3.py, and what they mean is told
by srt/models/dots3_common/modeling.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import SLIDES, dense_first, indexer, model, routed_by_sigmoid
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MLAConfig, RopeConfig

NAME = "dots3_note_text"
_ONE_WAY: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("tie_word_embeddings", "attention_bias"), (False,)),
    "scoring_func": ("sigmoid",),
    "topk_method": ("noaux_tc",),
    "hidden_act": ("silu",),
    **dict.fromkeys(("rope_scaling", "rope_parameters", "mlp_layer_types"), ()),
    **dict.fromkeys(("num_experts", "num_local_experts", "num_shared_experts"), ()),  # SGLang reads others
}
_GATES = ("headwise", "elementwise")
_INDEXED = ("index_topk", "index_n_heads", "index_head_dim")
# Of layers behind a window, and of the others
_BEHIND, _WHOLE = "swa_", ""


def _dots3(f: Fields) -> ModelConfig:
    for name, values in _ONE_WAY.items():
        f.only(name, *values)
    if not f.tells("max_position_embeddings"):
        f.cannot(
            "max_position_embeddings is missing: what SGLang's rules take then is another than its class"
        )
    layers = f.size("num_hidden_layers")
    kinds = f.per_layer("layer_types", layers, SLIDES)
    if kinds is None:
        raise ConfigError("config.json: layer_types is missing: SGLang asks it of each layer")
    if len(set(kinds)) < 2:
        f.cannot(f"layer_types are all {kinds[0]}: SGLang's two pools ask for layers of either kind")
    (whole, mla), (behind, mla_behind) = _latents(f, _WHOLE), _latents(f, _BEHIND)
    return model(
        f,
        {"full": whole, "sliding": replace(behind, window=f.size("sliding_window_size"))},
        kinds,
        dense_first(f),
        moe=routed_by_sigmoid(f),
        mla=_indexed(f, mla),
        mla_behind=mla_behind,
        whole_embedding=True,
    )


def _latents(f: Fields, kind: str) -> tuple[AttentionConfig, MLAConfig]:
    names = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    mla = MLAConfig(
        **{name: f.size(f"{kind}{name}") for name in names},
        indexer=None,
        norm_eps=f.number("rms_norm_eps"),
    )
    count = f.size(f"{kind}num_attention_heads")
    if f.size(f"{kind}num_key_value_heads") != count:
        raise ConfigError(f"config.json: {kind}num_key_value_heads: SGLang asks for {count}, one a query's")
    gate = f.get(f"{kind}attention_gate_type")
    if gate not in _GATES:
        raise ConfigError(f"config.json: {kind}attention_gate_type is {repr(gate)[:60]}: SGLang has {_GATES}")
    attention = AttentionConfig(
        *(count, count, mla.qk_head_dim, _rope(f, kind), mla.qk_head_dim**-0.5),
        head_gate=gate == "headwise",
        value_gate=gate == "elementwise",
        gates_first=True,
        norms_rest=True,
    )
    return attention, _scaled(f, mla)


def _scaled(f: Fields, mla: MLAConfig) -> MLAConfig:
    hidden = f.size("hidden_size")
    if not f.flag("apply_mla_qkv_lora_rescale") or mla.q_lora_rank is None:
        return mla
    by_query, by_latent = (hidden / mla.q_lora_rank) ** 0.5, (hidden / mla.kv_lora_rank) ** 0.5
    return replace(mla, query_scale=by_query, latent_scale=by_latent)


def _rope(f: Fields, kind: str) -> RopeConfig:
    theta, width = f.number(f"{kind}rope_theta", f.number("rope_theta")), f.size(f"{kind}qk_rope_head_dim")
    parameters = {"rope_type": "default", "rope_theta": theta}
    return RopeConfig(
        width, theta, f.size("max_position_embeddings"), interleaved=True, parameters=parameters
    )


def _indexed(f: Fields, mla: MLAConfig) -> MLAConfig:
    """Without index_topk SGLang makes none, whatever else is told."""
    told = [name for name in _INDEXED if f.has(name)]
    return replace(mla, indexer=indexer(f, is_interleaved=True)) if "index_topk" in told else mla


_SIZES = {
    "kv_lora_rank": 512,
    "q_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "attention_gate_type": "headwise",
}
DEFAULTS: Mapping[str, Any] = {
    **_SIZES,
    **{f"{_BEHIND}{name}": value for name, value in _SIZES.items()},
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads"), 64),
    **dict.fromkeys(("swa_num_attention_heads", "swa_num_key_value_heads"), 32),
    "vocab_size": 152064,
    "hidden_size": 2560,
    "hidden_act": "silu",
    "intermediate_size": 7168,
    "num_hidden_layers": 30,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "apply_mla_qkv_lora_rescale": True,
    "sliding_window_size": 512,
    "moe_intermediate_size": 1024,
    "n_shared_experts": 1,
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_layer_freq": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.0,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "n_group": 1,
    "topk_method": "noaux_tc",
    "topk_group": 1,
    "rope_theta": 50000.0,
}

FAMILIES = (Family(NAME, _dots3, DEFAULTS),)

"""Llama 4's language model: every fourth layer sees all and turns nothing, the others see their chunk."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import heads, model, which
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, Growth, MoEConfig
from runtime.server.tensor_names import TensorNames

_CHUNKS = {"full_attention": "full", "chunked_attention": "sliding"}
_EVERY = 4
_NAMES = TensorNames(mlp="feed_forward", shared="shared_expert")


def _llama4(f: Fields) -> ModelConfig:
    inner = f.size("intermediate_size")
    kinds = _kinds(f)
    found = model(
        f,
        {kind: _attention(f, kind) for kind in kinds},
        kinds,
        _mlps(f),
        moe=MoEConfig(
            num_experts=f.size("num_local_experts"),
            top_k=f.size("num_experts_per_tok"),
            intermediate_size=inner,
            shared_intermediate_size=inner,
            scoring="sigmoid",
            renormalize=False,
            weighs_input=True,
        ),
        names=_NAMES,
    )
    return replace(found, intermediate_size=f.size("intermediate_size_mlp"))


def _attention(f: Fields, kind: str) -> AttentionConfig:
    f.only("attention_bias", False)
    turned = heads(f, theta=500000.0, is_interleaved=True)
    tuned, growth = f.flag("attn_temperature_tuning"), _growth(f)
    if kind == "full":
        return replace(turned, rope=None, growth=growth if tuned else None)
    normed = f.flag("use_qk_norm")
    chunk = f.size("attention_chunk_size")
    return replace(turned, chunk=chunk, qk_norm="unit" if normed else "none", norms_turned=True)


def _growth(f: Fields) -> Growth:
    length = f.positive("floor_scale")
    return Growth(float(f.number("attn_scale")), float(length), shift=1)


def _kinds(f: Fields) -> list[str]:
    """Layers that turn nothing are those that see all, and no others."""
    layers, every = f.size("num_hidden_layers"), f.size("no_rope_layer_interval")
    turns = f.get("no_rope_layers") or [int((i + 1) % every != 0) for i in range(layers)]
    if not isinstance(turns, list) or len(turns) < layers or not {*turns} <= {0, 1}:
        raise ConfigError(f"config.json: no_rope_layers is {repr(turns)[:60]}: a 0 or 1 a layer is needed")
    ours = ["sliding" if one else "full" for one in turns[:layers]]
    if ours != ["sliding" if (i + 1) % _EVERY else "full" for i in range(layers)]:
        f.cannot(f"no_rope_layers are others than each {_EVERY}th, as SGLang has them")
    told = f.per_layer("layer_types", layers, _CHUNKS)
    if told is not None and told != ours:
        f.cannot("layer_types are not those of no_rope_layers: here chunks are seen where queries turn")
    return ours


def _mlps(f: Fields) -> list[str]:
    layers, every = f.size("num_hidden_layers"), f.size("interleave_moe_layer_step")
    ours = range(every - 1, layers, every)
    told = f.layer_numbers("moe_layers") if f.has("moe_layers") else {*ours}
    if told != {*ours}:
        f.cannot(f"moe_layers are not those of interleave_moe_layer_step {every}: SGLang goes by that alone")
    return which(layers, lambda i: i in told)


FAMILIES = (
    Family(
        "llama4_text",
        _llama4,
        {
            "intermediate_size": 8192,
            "intermediate_size_mlp": 16384,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "num_experts_per_tok": 1,
            "num_local_experts": 16,
            "interleave_moe_layer_step": 1,
            "use_qk_norm": True,
            "no_rope_layer_interval": 4,
            "attention_chunk_size": 8192,
            "attn_temperature_tuning": True,
            "floor_scale": 8192,
            "attn_scale": 0.1,
        },
    ),
)

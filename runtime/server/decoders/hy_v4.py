"""Hunyuan 4: latents with sinks and gates, an indexer whose choice the next layers share, several residual
streams, each of which stays what it is, and experts after a dense layer.

SGLang has a config class of its own for these files: what transformers' takes otherwise is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import MLPS, everywhere, latents, model, routed_by_sigmoid
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, Caps, IndexerConfig, MLAConfig, StreamsConfig
from runtime.server.tensor_names import ServedNames, TensorNames

NAME = "hy_v4"
_SPARSE = {"indexed_attention": "full", "deepseek_sparse_attention": "full"}
_INDEXERS = {"full": "full", "shared": "shared"}
# Of no other value are SGLang's layers those of transformers: srt/configs/hy_v4.py.
_ALONE: Mapping[str, Any] = {
    **dict.fromkeys(("tie_word_embeddings", "attention_bias"), False),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    **dict.fromkeys(("enable_ihc", "gated_mla", "learnable_sink"), True),
    "gating_type": "elementwise",
}
_ROPE = "rope_parameters"


def _hy_v4(f: Fields) -> ModelConfig:
    _check(f)
    layers = f.size("num_hidden_layers")
    attention, mla = _latents(f, layers)
    return model(
        f,
        {"full": attention},
        f.per_layer("layer_types", layers, _SPARSE) or everywhere(f, "full"),
        f.per_layer("mlp_layer_types", layers, MLPS) or ["dense", *["moe"] * (layers - 1)],
        moe=replace(routed_by_sigmoid(f), router_in_fp32=True),
        mla=mla,
        streams=StreamsConfig(f.size("hc_mult"), 0, f.number("hc_eps"), magnitude=f.number("hc_magnitude")),
        caps=(_caps(f),) * layers,
        logits_in_fp32=f.flag("enable_lm_head_fp32"),
        names=TensorNames(latent_gate="linear_gate", served=ServedNames(((r"^model\.", ".model."),))),
    )


def _check(f: Fields) -> None:
    for name, value in _ALONE.items():
        f.only(name, value)
    if not f.tells("index_topk"):
        f.cannot("index_topk is missing: which backend its server takes is told by the file")
    told = f.section(_ROPE)
    if told.get("rope_theta") is None:
        f.cannot(f"{_ROPE} has no rope_theta: SGLang and transformers take two other values")
    if told.get("rope_type", "default") != "default":
        f.cannot(f"rope_type is {repr(told['rope_type'])[:60]}: of this family no rope is stretched here")


def _latents(f: Fields, layers: int) -> tuple[AttentionConfig, MLAConfig]:
    """Turned as transformers turns them, the first half by the second: SGLang turns neighbours."""
    attention, mla = latents(f, is_interleaved=False, indexer=_indexer(f, layers))
    return replace(attention, sinks=True, value_gate=True), mla


def _indexer(f: Fields, layers: int) -> IndexerConfig:
    told = f.per_layer("indexer_types", layers, _INDEXERS)
    kinds = told or ["shared" if layer % 4 != 1 and layer else "full" for layer in range(layers)]
    if kinds[0] != "full":
        raise ConfigError("config.json: indexer_types: the first layer has no other's choice to share")
    return IndexerConfig(
        f.size("index_n_heads"),
        f.size("index_head_dim"),
        f.size("index_topk"),
        interleaved=False,
        turns_last=True,
        norm_eps=f.number("rms_norm_eps"),
        sharing=tuple(layer for layer, kind in enumerate(kinds) if kind == "shared"),
    )


def _caps(f: Fields) -> Caps:
    limit = f.positive("swiglu_limit")
    return Caps(limit, before=True)


FAMILIES = (
    Family(
        NAME,
        _hy_v4,
        {
            "vocab_size": 120832,
            "hidden_size": 2816,
            "intermediate_size": 6912,
            "moe_intermediate_size": 768,
            "num_hidden_layers": 34,
            "num_attention_heads": 32,
            "max_position_embeddings": 262144,
            "rms_norm_eps": 1e-5,
            "n_routed_experts": 256,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "routed_scaling_factor": 2.827,
            "norm_topk_prob": True,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 192,
            "qk_rope_head_dim": 64,
            "v_head_dim": 256,
            "index_topk": 2048,
            "index_head_dim": 128,
            "index_n_heads": 16,
            "hc_mult": 4,
            "hc_magnitude": 2.0,
            "hc_eps": 1e-6,
            "swiglu_limit": 10.0,
            "enable_lm_head_fp32": True,
        },
    ),
)

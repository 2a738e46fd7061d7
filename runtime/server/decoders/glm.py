"""GLM 4 to 4.7 by heads, 4.7 Flash by latents, GLM 5 by latents and an indexer."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.server.config import ModelConfig
from runtime.server.decoders import deepseek
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import dense_first, everywhere, heads, indexer, model, routed_by_sigmoid
from runtime.server.errors import ConfigError


def _glm4_moe(f: Fields) -> ModelConfig:
    f.only("tie_word_embeddings", False)  # as of those below, SGLang's class has a head apart, and reads none
    attention = heads(
        f,
        share=0.5,
        bias=f.flag("attention_bias"),
        qk_norm="head" if f.flag("use_qk_norm") else "none",
    )
    return model(f, {"full": attention}, everywhere(f, "full"), dense_first(f), moe=routed_by_sigmoid(f))


def _glm5(f: Fields) -> ModelConfig:
    f.only("mlp_bias", False)
    f.only("rope_interleave", True)
    note_shared_indexers(f)
    return deepseek.decoder(f, True, indexer(f, is_interleaved=True))


def note_shared_indexers(f: Fields) -> None:
    """A layer of its own, told in one of three ways."""
    f.get("index_skip_topk_offset")
    kinds = {*_of_layers(f, "indexer_types"), *_of_layers(f, "index_topk_pattern")}
    if {"shared", "S"} & kinds or f.size("index_topk_freq", 1) > 1:
        f.cannot("layers share an indexer: this runtime gives each layer its own")


def _of_layers(f: Fields, name: str) -> Iterator[str]:
    listed = f.get(name) or ()
    if not isinstance(listed, (str, list, tuple)):
        raise ConfigError(f"config.json: {name} is {listed!r:.60}: a kind a layer is needed")
    return map(str, listed)


FAMILIES = (
    Family(
        "glm4_moe",
        _glm4_moe,
        {
            "intermediate_size": 10944,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "moe_intermediate_size": 1408,
            "num_experts_per_tok": 8,
            "n_shared_experts": 1,
            "n_routed_experts": 128,
            "first_k_dense_replace": 1,
            "norm_topk_prob": True,
        },
    ),
    Family(
        "glm_moe_dsa",
        _glm5,
        {
            "intermediate_size": 12288,
            "moe_intermediate_size": 2048,
            "n_shared_experts": 1,
            "n_routed_experts": 256,
            "routed_scaling_factor": 2.5,
            "kv_lora_rank": 512,
            "q_lora_rank": 2048,
            "qk_rope_head_dim": 64,
            "v_head_dim": 256,
            "qk_nope_head_dim": 192,
            "num_experts_per_tok": 8,
            "first_k_dense_replace": 3,
            "norm_topk_prob": True,
            "max_position_embeddings": 202752,
            "rms_norm_eps": 1e-5,
            "index_topk": 2048,
            "index_head_dim": 128,
            "index_n_heads": 32,
        },
    ),
)

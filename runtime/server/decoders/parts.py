"""What families have in common: attention by heads or by latents, dense and expert layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.rope import interleaved, latent_scale, read_rope
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.layer_config import AttentionConfig, IndexerConfig, MLAConfig, MoEConfig, RopeConfig
from runtime.server.recurrent import GatedDeltaConfig

SLIDES = {"full_attention": "full", "sliding_attention": "sliding"}
MLPS = {"dense": "dense", "sparse": "moe"}
TAKEN_AS_SILU = ("silu", "swish")


def model(
    f: Fields,
    attention: Mapping[str, AttentionConfig],
    attention_kinds: Iterable[str],
    mlp_kinds: Iterable[str],
    **own: Any,
) -> ModelConfig:
    if "activation" not in own:
        f.only("hidden_act", *TAKEN_AS_SILU)
    if "rms_eps" not in own:
        own["rms_eps"] = f.number("rms_norm_eps")
    return layered(f, attention, attention_kinds, mlp_kinds, **own)


def layered(
    f: Fields,
    attention: Mapping[str, AttentionConfig],
    attention_kinds: Iterable[str],
    mlp_kinds: Iterable[str],
    **own: Any,
) -> ModelConfig:
    """As many layers as have a kind."""
    kinds = tuple(attention_kinds)
    shared: dict[str, Any] = {
        "intermediate_size": f.count("intermediate_size"),
        "tie_word_embeddings": f.flag("tie_word_embeddings"),
    }
    if "max_position" not in own:
        shared["max_position"] = f.size("max_position_embeddings")
    return ModelConfig(
        model_type=str(f.get("model_type")),
        hidden_size=f.size("hidden_size"),
        num_layers=len(kinds),
        vocab_size=f.size("vocab_size"),
        attention=dict(attention),
        attention_kinds=kinds,
        layer_kinds=tuple(mlp_kinds),
        obstacles=tuple(dict.fromkeys(f.obstacles)),
        uncomputed=tuple(dict.fromkeys(f.uncomputed)),
        **{**shared, **own},
    )


def heads(
    f: Fields,
    *,
    theta: float = 10000.0,
    share: float | None = None,
    is_interleaved: bool = False,
    count: int | None = None,
    kv_count: int | None = None,
    width: int | None = None,
    **own: Any,
) -> AttentionConfig:
    """Grouped queries that see everything before them; without a `rope` of their own, it is read."""
    count = count or f.size("num_attention_heads")
    kv_count = kv_count or f.size("num_key_value_heads", count)
    width = width or f.size("head_dim", f.size("hidden_size") // count)
    if not width:
        raise ConfigError(f"config.json: hidden_size {f.get('hidden_size')} is less than its {count} heads")
    if "rope" not in own:
        own["rope"] = interleaved(read_rope(f, width, theta=theta, share=share), is_interleaved)
    return AttentionConfig(count, kv_count, width, **{"scale": width**-0.5, **own})


def check_both(f: Fields, kinds: list[str]) -> None:
    """SGLang makes pools of both. Without a state it bounds requests by none, or ends."""
    for kind, what in (("full", "attention"), ("recurrent", "a state")):
        if kind not in kinds:
            f.cannot(f"no layer has {what}: this runtime has no server of one kind of these alone")


def everywhere(f: Fields, kind: str) -> list[str]:
    return [kind] * f.size("num_hidden_layers")


def indexer(f: Fields, is_interleaved: bool) -> IndexerConfig:
    if f.get("index_kpool") not in (None, 1):
        raise Unsupported("config.json: an index_kpool makes other pages: a server answers for it")
    return IndexerConfig(
        f.size("index_n_heads"), f.size("index_head_dim"), f.size("index_topk"), is_interleaved
    )


def latents(
    f: Fields,
    is_interleaved: bool = True,
    indexer: IndexerConfig | None = None,
    rope: RopeConfig | None = None,
) -> tuple[AttentionConfig, MLAConfig]:
    """Without a `rope` of their own, it is read."""
    mla = MLAConfig(
        q_lora_rank=f.size_or_none("q_lora_rank"),
        kv_lora_rank=f.size("kv_lora_rank"),
        qk_nope_head_dim=f.size("qk_nope_head_dim"),
        qk_rope_head_dim=f.size("qk_rope_head_dim"),
        v_head_dim=f.size("v_head_dim"),
        indexer=indexer,
    )
    if indexer is not None and mla.q_lora_rank is None:
        raise ConfigError("config.json: an indexer without q_lora_rank: it reads the compressed query")
    f.only("attention_bias", False)  # of which SGLang's classes have none
    count = f.size("num_attention_heads")
    rope = interleaved(rope or read_rope(f, mla.qk_rope_head_dim), is_interleaved)
    scale = latent_scale(rope, mla.qk_head_dim)
    return AttentionConfig(count, count, mla.qk_head_dim, rope, scale), mla


def gated_delta(f: Fields, **own: Any) -> GatedDeltaConfig:
    return GatedDeltaConfig(
        num_key_heads=f.size("linear_num_key_heads"),
        num_value_heads=f.size("linear_num_value_heads"),
        key_head_dim=f.size("linear_key_head_dim"),
        value_head_dim=f.size("linear_value_head_dim"),
        conv_kernel=f.size("linear_conv_kernel_dim"),
        **own,
    )


def routed_by_sigmoid(f: Fields) -> MoEConfig:
    """DeepSeek's router: sigmoid scores with a correction, groups, and shared experts beside it."""
    intermediate = f.size("moe_intermediate_size")
    return MoEConfig(
        num_experts=f.size(f.spelled("n_routed_experts", "num_experts", "num_local_experts")),
        top_k=f.size("num_experts_per_tok"),
        intermediate_size=intermediate,
        shared_intermediate_size=intermediate * f.count(f.spelled("n_shared_experts", "num_shared_experts")),
        scoring="sigmoid",
        renormalize=f.flag("norm_topk_prob"),
        correction_bias=True,
        num_groups=f.size("n_group", 1),
        top_k_groups=f.size("topk_group", 1),
        routed_scaling_factor=f.number("routed_scaling_factor", 1.0),
    )


def routed(f: Fields, intermediate: str, **own: Any) -> MoEConfig:
    experts = f.size(f.spelled("num_experts", "num_local_experts"))
    return MoEConfig(experts, f.size("num_experts_per_tok"), f.size(intermediate), **own)


def dense_first(f: Fields) -> list[str]:
    """The first few dense."""
    layers = f.size("num_hidden_layers")
    first = f.count("first_k_dense_replace")
    every = f.size("moe_layer_freq", 1)
    ours = which(layers, lambda i: i >= first and i % every == 0)
    return as_counted(f, "mlp_layer_types", MLPS, ours, f"first_k_dense_replace {first}")


def as_counted(f: Fields, name: str, kinds: Mapping[str, str], ours: list[str], by: str) -> list[str]:
    """What a list tells of each layer, where it is what SGLang counts by another field."""
    told = f.per_layer(name, len(ours), kinds)
    if told not in (None, ours):
        f.cannot(f"{name} are not those of {by}: SGLang goes by that alone")
    return told or ours


def which(layers: int, has_experts: Callable[[int], bool]) -> list[str]:
    return ["moe" if has_experts(i) else "dense" for i in range(layers)]

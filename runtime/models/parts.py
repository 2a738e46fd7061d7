"""What families share: attention by heads or by latents, routed experts, the model of all layers."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.models.reading import Config, members
from runtime.models.rope import latent_scale, read_rope
from runtime.server.config import Gaps, ModelConfig, Style, Traits, Vocabulary
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.layer_config import AttentionConfig, IndexerConfig, MLAConfig, MoEConfig

SLIDES = {"full_attention": "full", "sliding_attention": "sliding"}
SILU = ("silu", "swish")
USUAL = Traits()


def model(
    c: Config,
    attention: Mapping[str, AttentionConfig],
    attention_kinds: Iterable[str],
    layer_kinds: Iterable[str],
    *,
    vocabulary: Mapping[str, Any] = {},
    style: Mapping[str, Any] = {},
    traits: Traits = USUAL,
    **parts: Any,
) -> ModelConfig:
    """Return a model. `vocabulary`, `style`: differences from most families; `parts`: moe, mla, recurrent."""
    gaps = [*c.gaps, *(f"config.json: {why}" for why in _unchosen(parts.get("moe")))]
    return ModelConfig(
        model_type=str(c.hf.get("model_type")),
        hidden_size=c.hidden_size,
        intermediate_size=c.intermediate_size,
        max_position=c.max_position_embeddings,
        vocabulary=Vocabulary(c.vocab_size, c.tie_word_embeddings, **vocabulary),
        attention=dict(attention),
        attention_kinds=tuple(attention_kinds),
        layer_kinds=tuple(layer_kinds),
        style=Style(**{"rms_eps": c.rms_norm_eps, **style}),
        traits=traits,
        gaps=Gaps(tuple(dict.fromkeys(gaps))),
        **parts,
    )


def _unchosen(moe: MoEConfig | None) -> Iterator[str]:
    """Yield the reasons why a token cannot get its number of experts; a server exits at its first routing."""
    if moe is None:
        return
    experts, groups, best = moe.num_experts, moe.num_groups, moe.top_k_groups
    if moe.top_k > experts:
        yield f"num_experts_per_tok is {moe.top_k}: there are {experts} experts"
    elif experts % groups:
        yield f"{experts} experts cannot be divided evenly among {groups} groups"
    elif best > groups:
        yield f"topk_group is {best}: there are {groups} groups of experts"
    elif moe.top_k > experts // groups * best:
        yield f"num_experts_per_tok is {moe.top_k}: {best} of {groups} groups have fewer experts"
    elif 1 < groups > experts // 2:
        yield f"{groups} groups of {experts} experts: each is worth what its best 2 are"


def heads(c: Config, rope: Mapping[str, Any] | None = {}, **own: Any) -> AttentionConfig:
    """Return grouped-query attention without a window. `rope`: arguments of `read_rope`; None: no rope."""
    width = c.head_width
    turned = None if rope is None else read_rope(c, width, **rope)
    return AttentionConfig(c.num_attention_heads, c.kv_heads, width, turned, **{"scale": width**-0.5, **own})


def by_window(c: Config, kinds: Iterable[str], window: int | None, **own: Any) -> dict[str, AttentionConfig]:
    """Return the attention of each kind in `kinds`: `full`, and `sliding` with the window."""
    found = dict.fromkeys(kinds)
    if "sliding" in found and not window:
        raise ConfigError("config.json: layer_types names sliding_attention without a sliding_window")
    return {kind: heads(c, window=window if kind == "sliding" else None, **own) for kind in found}


@dataclass(frozen=True, kw_only=True)
class Latent(Config):
    """Multi-head latent attention, as in DeepSeek and GLM-5."""

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    def latents(
        self, is_interleaved: bool, indexer: IndexerConfig | None = None
    ) -> tuple[AttentionConfig, MLAConfig]:
        if self.q_lora_rank is None:
            raise Unsupported("config.json: q_lora_rank is null: a server answers for whole queries")
        mla = MLAConfig(
            self.q_lora_rank,
            self.kv_lora_rank,
            self.qk_nope_head_dim,
            self.qk_rope_head_dim,
            self.v_head_dim,
            indexer,
        )
        rope = read_rope(self, mla.qk_rope_head_dim, is_interleaved=is_interleaved)
        count, scale = self.num_attention_heads, latent_scale(rope, mla.qk_head_dim)
        return AttentionConfig(count, count, mla.qk_head_dim, rope, scale), mla


@dataclass(frozen=True, kw_only=True)
class Routed(Config):
    """DeepSeek's router: sigmoid scores with a correction, groups, and shared experts."""

    SPELLED = members(n_routed_experts=("num_local_experts",))

    n_routed_experts: int
    n_shared_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    norm_topk_prob: bool = True
    n_group: int = 1
    topk_group: int = 1
    routed_scaling_factor: float = 1.0
    first_k_dense_replace: int = 0
    moe_layer_freq: int = 1

    def routed(self, **own: Any) -> MoEConfig:
        told: dict[str, Any] = {
            "num_experts": self.n_routed_experts,
            "top_k": self.num_experts_per_tok,
            "intermediate_size": self.moe_intermediate_size,
            "shared_intermediate_size": self.moe_intermediate_size * self.n_shared_experts,
            "scoring": "sigmoid",
            "renormalize": self.norm_topk_prob,
            "correction_bias": True,
            "num_groups": self.n_group,
            "top_k_groups": self.topk_group,
            "routed_scaling_factor": self.routed_scaling_factor,
        }
        return MoEConfig(**{**told, **own})

    def dense_first(self) -> list[str]:
        first, every = self.first_k_dense_replace, self.moe_layer_freq
        ours = which(self.num_hidden_layers, lambda i: i >= first and i % every == 0)
        kinds = {"dense": "dense", "sparse": "moe"}
        return self.counted("mlp_layer_types", kinds, ours, f"first_k_dense_replace {first}")


@dataclass(frozen=True, kw_only=True)
class SoftRouted(Config):
    """A router with softmax scores, in every layer or in every n-th one (Qwen)."""

    SPELLED = members(num_experts=("num_local_experts",))

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    norm_topk_prob: bool = False
    decoder_sparse_step: int = 1
    mlp_only_layers: list[Any] | None = None

    def routed(self, **own: Any) -> MoEConfig:
        counts = self.num_experts, self.num_experts_per_tok, self.moe_intermediate_size
        return MoEConfig(*counts, renormalize=self.norm_topk_prob, **own)

    def sparse(self) -> list[str]:
        dense, step = self.mlp_only_layers or [], self.decoder_sparse_step
        if not all(type(one) is int for one in dense):
            raise ConfigError("config.json: mlp_only_layers is no list of layers")
        return which(self.num_hidden_layers, lambda i: i not in dense and (i + 1) % step == 0)


def which(layers: int, has_experts: Callable[[int], bool]) -> list[str]:
    return ["moe" if has_experts(i) else "dense" for i in range(layers)]


def check_both(c: Config, kinds: Iterable[str]) -> None:
    """Refuse layers of one kind only: SGLang makes pools for both, and without states it fails."""
    for kind, what in (("full", "attention"), ("recurrent", "a state")):
        if kind not in kinds:
            c.cannot(f"no layer has {what}: this runtime has no server of one kind of these alone")

"""DeepSeek V3, R1 and V3.2, and Kimi K2 (a V3): latent attention, and experts after a few dense layers."""

from dataclasses import dataclass
from typing import Any

from runtime.models.parts import SILU, Latent, Routed, model
from runtime.models.reading import members
from runtime.server.choices.experts import by_trtllm
from runtime.server.config import ModelConfig, Traits
from runtime.server.family import Family
from runtime.server.layer_config import IndexerConfig

SERVED: dict[str, Any] = {
    "experts": by_trtllm(None, "fp8", "modelopt_fp8", "modelopt_fp4"),
    "writes_method": True,
}
# Whose layers are those of srt/models/deepseek_v2.py.
TRAITS = Traits(routing="deepseek", of_deepseek=True, draft="experts")
_ONLY = members(
    hidden_act=SILU, scoring_func=("sigmoid",), topk_method=("noaux_tc",), attention_bias=(False,)
)


@dataclass(frozen=True, kw_only=True)
class DeepseekConfig(Latent, Routed):
    ONLY = _ONLY

    intermediate_size: int = 18432
    moe_intermediate_size: int = 2048
    n_shared_experts: int = 1
    n_routed_experts: int = 256
    routed_scaling_factor: float = 2.5
    kv_lora_rank: int = 512
    q_lora_rank: int | None = 1536
    qk_rope_head_dim: int = 64
    v_head_dim: int = 128
    qk_nope_head_dim: int = 128
    n_group: int = 8
    topk_group: int = 4
    num_experts_per_tok: int = 8
    first_k_dense_replace: int = 3
    max_position_embeddings: int = 4096


@dataclass(frozen=True, kw_only=True)
class SparseConfig(DeepseekConfig):
    """DeepSeek-V3.2 and GLM-5, which have an indexer."""

    ONLY = members(**_ONLY, mlp_bias=(False,), rope_interleave=(True,), index_kpool=(1,))

    max_position_embeddings: int = 163840
    index_topk: int = 2048
    index_head_dim: int = 128
    index_n_heads: int = 64

    def indexer(self, is_interleaved: bool) -> IndexerConfig:
        return IndexerConfig(self.index_n_heads, self.index_head_dim, self.index_topk, is_interleaved)


def v3(c: DeepseekConfig) -> ModelConfig:
    interleaves = c.hf.get("rope_interleave") in (None, True)
    traits = Traits(routing="deepseek", of_deepseek=True, draft="experts", fuses_shared_of=256)
    return decoder(c, interleaves, None, traits)


def v32(c: SparseConfig) -> ModelConfig:
    return decoder(c, True, c.indexer(is_interleaved=False), TRAITS)


def decoder(
    c: DeepseekConfig, is_interleaved: bool, indexer: IndexerConfig | None, traits: Traits
) -> ModelConfig:
    attention, mla = c.latents(is_interleaved, indexer)
    kinds = ["full"] * c.num_hidden_layers
    return model(c, {"full": attention}, kinds, c.dense_first(), moe=c.routed(), mla=mla, traits=traits)


_V3 = ("DeepseekV3ForCausalLM", "DeepseekV3Config")
FAMILIES = (
    Family("deepseek_v3", *_V3, DeepseekConfig, v3, attends="latent", reads_headers=True, **SERVED),
    Family("kimi_k2", _V3[0], "_KimiK2ConfigAlias", DeepseekConfig, v3, attends="latent", reads_headers=True,
           own_config=_V3[1], **SERVED),
    Family("deepseek_v32", "DeepseekV32ForCausalLM", "_DeepseekV32ConfigAlias", SparseConfig, v32,
           attends="sparse", **SERVED),
)  # fmt: skip

"""DeepSeek V2, V3 and V3.2, and Kimi K2, which is a V3: latents, and experts behind a few dense layers."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import dense_first, everywhere, indexer, latents, model, routed_by_sigmoid
from runtime.server.layer_config import IndexerConfig


def _v3(f: Fields) -> ModelConfig:
    return decoder(f, f.get("rope_interleave") is None or f.flag("rope_interleave"))


def _v32(f: Fields) -> ModelConfig:
    f.only("mlp_bias", False)
    f.only("rope_interleave", True)
    return decoder(f, True, indexer(f, is_interleaved=False))


def decoder(f: Fields, is_interleaved: bool, sparse: IndexerConfig | None = None) -> ModelConfig:
    f.only("scoring_func", "sigmoid")
    f.only("topk_method", "noaux_tc")
    attention, mla = latents(f, is_interleaved, sparse)
    moe = routed_by_sigmoid(f)
    return model(f, {"full": attention}, everywhere(f, "full"), dense_first(f), moe=moe, mla=mla)


V3 = {
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "n_routed_experts": 256,
    "routed_scaling_factor": 2.5,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "qk_nope_head_dim": 128,
    "n_group": 8,
    "topk_group": 4,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "norm_topk_prob": True,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
}
_SPARSE = {"max_position_embeddings": 163840, "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64}


FAMILIES = (
    Family("deepseek_v3", _v3, V3),
    Family("kimi_k2", _v3, V3),
    Family("deepseek_v32", _v32, {**V3, **_SPARSE}),
)

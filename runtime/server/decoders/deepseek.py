"""DeepSeek V2, V3 and V3.2, and Kimi K2, which is a V3: latents, and experts behind a few dense layers."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import dense_first, everywhere, indexer, latents, model, routed_by_sigmoid
from runtime.server.layer_config import IndexerConfig, MoEConfig


def _v3(f: Fields) -> ModelConfig:
    return decoder(f, f.get("rope_interleave") is None or f.flag("rope_interleave"))


def _v32(f: Fields) -> ModelConfig:
    f.only("mlp_bias", False)
    f.only("rope_interleave", True)
    return decoder(f, True, indexer(f, is_interleaved=False))


def _v2(f: Fields) -> ModelConfig:
    f.only("mlp_bias", False)
    attention, mla = latents(f)
    return model(
        f, {"full": attention}, everywhere(f, "full"), dense_first(f), moe=_routed_by_softmax(f), mla=mla
    )


def _routed_by_softmax(f: Fields) -> MoEConfig:
    """Shares are of all experts together, and groups are worth their best one."""
    f.only("scoring_func", "softmax")
    f.only("norm_topk_prob", False)
    f.only("topk_method", "greedy", "group_limited_greedy")
    if not f.has("num_experts_per_tok"):
        f.cannot("num_experts_per_tok is missing")
    in_groups = f.get("topk_method") == "group_limited_greedy"
    groups, best = f.size("n_group", 1), f.size("topk_group", 1)
    inner = f.size("moe_intermediate_size")
    return MoEConfig(
        num_experts=f.size("n_routed_experts"),
        top_k=f.size("num_experts_per_tok", 1),
        intermediate_size=inner,
        shared_intermediate_size=inner * f.count("n_shared_experts"),
        renormalize=False,
        num_groups=groups if in_groups else 1,
        top_k_groups=best if in_groups else 1,
        group_worth=1,
        routed_scaling_factor=f.number("routed_scaling_factor", 1.0),
    )


def _dots_vlm(f: Fields) -> ModelConfig:
    """A V3 that SGLang reads by its class of a V2, where nothing is V3's that a file does not tell."""
    _only_read(f)
    _only_told(f)
    return _v3(f)


def _vl2(f: Fields) -> ModelConfig:
    """DeepSeek-VL2's text, a V2 or a V3 without a compressed query: srt/models/deepseek_vl2.py hands on one
    tensor at a time, and one that is made of two is then never read."""
    _only_read(f)
    f.only("q_lora_rank")
    if f.get("architectures") != ["DeepseekV2ForCausalLM"]:
        f.cannot(f"its architectures is {repr(f.get('architectures'))[:60]}: SGLang asks it what it fuses")
    if f.get("topk_method") == "noaux_tc":
        _only_told(f)
        return _v3(f)
    f.only("rope_interleave", True)
    return _v2(f)


_TOLD = ("scoring_func", "topk_method", "n_group", "topk_group")
_OF_OTHERS = ("mlp_layer_types", "num_experts", "num_local_experts", "num_shared_experts")


def _only_read(f: Fields) -> None:
    f.size("n_routed_experts")
    for name in _OF_OTHERS:
        if f.has(name):
            f.cannot(f"{name} is told, which SGLang's class does not read")
    f.only("attention_bias", False)  # of which its class has none


def _only_told(f: Fields) -> None:
    for name in _TOLD:
        if not f.has(name):
            f.cannot(f"{name} is {f.get(name)!r}: SGLang has no others than those that are told")


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

_V2 = {
    "intermediate_size": 11008,
    "moe_intermediate_size": 1407,
    "n_shared_experts": 2,
    "n_routed_experts": 64,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "qk_nope_head_dim": 128,
    "topk_method": "greedy",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
}

FAMILIES = (
    Family("deepseek_v2", _v2, _V2),
    Family("deepseek_v3", _v3, V3, {"MistralLarge3ForCausalLM": "mistral_large_3"}),
    Family("kimi_k2", _v3, V3),
    Family("dots_vlm_text", _dots_vlm, V3),
    Family("deepseek_vl2_text", _vl2, V3),
    Family("deepseek_v32", _v32, {**V3, **_SPARSE}),
)

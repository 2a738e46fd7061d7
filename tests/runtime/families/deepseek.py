from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import HF, Tiny, with_count, with_step

TINY: dict[str, Tiny] = {}
TINY["deepseek_v2"] = Tiny(
    "DeepseekV2Config",
    {
        **sizes.LATENT,
        "n_group": 4,
        "topk_group": 2,
        "topk_method": "group_limited_greedy",
        "routed_scaling_factor": 4.0,
        "first_k_dense_replace": 1,
    },
    {
        **choices.without(choices.LATENT, "norm_topk_prob"),
        "q_lora_rank": (None, 24),
        "rope_parameters": choices.MSCALES,
        "topk_method": ("greedy", "group_limited_greedy"),
        "norm_topk_prob": (False,) * 9 + (True,),
        "mlp_bias": (False,) * 9 + (True,),
    },
    as_published=lambda hf: {**with_step(hf), "scoring_func": "softmax"},
)
TINY["deepseek_v3"] = Tiny(
    "DeepseekV3Config",
    {
        **sizes.LATENT,
        "n_group": 4,
        "topk_group": 2,
        "first_k_dense_replace": 1,
        "rope_parameters": {**sizes.YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    },
    {
        **choices.LATENT,
        "q_lora_rank": (None, 24),
        "rope_interleave": (True, False),
        "rope_parameters": choices.MSCALES,
    },
    as_published=with_step,
)
TINY["deepseek_v32"] = Tiny(
    "DeepseekV32Config",
    {**sizes.LATENT, **sizes.SPARSE, "n_group": 4, "topk_group": 2},
    {**choices.LATENT, **choices.SPARSE, "rope_parameters": choices.MSCALES},
    as_published=with_count,
)


def _dots_vlm(hf: HF) -> HF:
    """Flat, with what SGLang's class would take otherwise."""
    routes = {"scoring_func": "sigmoid", "topk_method": "noaux_tc"}
    tower = {"embed_dim": 16, "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1}
    told = {"model_type": "dots_vlm", "architectures": ["DotsVLMForCausalLM"]}
    return {**routes, **hf, **told, "vision_config": {**tower, "intermediate_size": 16}}


TINY["dots_vlm_text"] = Tiny(
    "DeepseekV3Config",
    TINY["deepseek_v3"].sizes,
    TINY["deepseek_v3"].space,
    as_published=_dots_vlm,
)


def _vl2(hf: HF) -> HF:
    """In a section that is a DeepSeek-V2's, beside a projector as wide."""
    routes = {"scoring_func": "sigmoid", "topk_method": "noaux_tc"}
    told = {"model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"]}
    width = hf["hidden_size"]
    return {
        **{"model_type": "deepseek_vl_v2", "tile_tag": "2D", "projector_config": {"n_embed": width}},
        "language_config": {**routes, **hf, **told},
    }


TINY["deepseek_vl2_text"] = Tiny(
    "DeepseekV3Config",
    {**TINY["deepseek_v3"].sizes, "q_lora_rank": None},
    {**TINY["dots_vlm_text"].space, "q_lora_rank": (None,) * 9 + (24,)},
    as_published=_vl2,
)

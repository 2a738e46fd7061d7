from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny


def _minimax_m3_vl(hf: dict[str, Any]) -> dict[str, Any]:
    """Under the names that transformers takes, and writes as others; what its classes never ask is told."""
    text, vision = dict(hf["text_config"]), dict(hf["vision_config"])
    sparse = [int(kind == "minimax_m3_sparse") for kind in text.pop("layer_types")]
    routed = [int(kind == "sparse") for kind in text.pop("mlp_layer_types")]
    blocks = {
        "sparse_num_index_heads": text.pop("index_n_heads"),
        "sparse_index_dim": text.pop("index_head_dim"),
        "sparse_block_size": text.pop("index_block_size"),
        "sparse_topk_blocks": text.pop("index_topk_blocks"),
        "sparse_local_block": text.pop("index_local_blocks"),
        "sparse_init_block": 0,
        "sparse_disable_index_value": sparse,
        "sparse_attention_freq": sparse,
    }
    share = text["rope_parameters"].get("partial_rotary_factor", 1.0)
    said = {"use_gemma_norm": True, "qk_norm_type": "per_head", "scoring_func": "sigmoid"}
    said |= {"use_routing_bias": True, "n_shared_experts": 1, "hidden_act": "swigluoai"}
    text |= {**said, "moe_layer_freq": routed, "rotary_dim": int(text["head_dim"] * share)}
    text |= {"architectures": ["MiniMaxM3SparseForCausalLM"], "sparse_attention_config": blocks}
    squeezed = {name: vision.pop(name) for name in ("temporal_patch_size", "spatial_merge_size")}
    vision |= {"model_type": "clip_vision_model", "img_token_compression_config": squeezed}
    vision |= {"position_embedding_type": "rope", "rope_mode": "3d", "vision_segment_max_frames": None}
    del text["model_type"]
    return {
        "model_type": "minimax_m3_vl",
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
        "projector_hidden_size": hf["projector_hidden_size"],
        "tie_word_embeddings": hf["tie_word_embeddings"],
        "text_config": text,
        "vision_config": vision,
    }


TINY: dict[str, Tiny] = {}
TINY["minimax_m3_vl"] = Tiny(
    "MiniMaxM3VLConfig",
    {
        "head_dim": 32,
        "intermediate_size": 32,
        "shared_intermediate_size": 32,
        "dense_intermediate_size": 96,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
        "layer_types": ["full_attention", "minimax_m3_sparse"],
        "mlp_layer_types": ["dense", "sparse"],
        "index_n_heads": 2,
        "index_head_dim": 32,
        "index_block_size": 4,
        "index_topk_blocks": 2,
        "swiglu_limit": 0.5,
        "swiglu_alpha": 1.3,
    },
    {
        **choices.without(choices.HEADS, "hidden_act"),
        **choices.EXPERTS,
        "num_hidden_layers": (3,),
        "head_dim": (8, 16, 32),
        "tie_word_embeddings": (False,) * 19 + (True,),
        "rope_parameters": choices.WHOLE_ROPES,
        "intermediate_size": (16, 32),
        "shared_intermediate_size": (None,) * 19 + (48,),
        "dense_intermediate_size": (48, 96),
        "num_local_experts": (4, 8),
        "routed_scaling_factor": (1.0, 2.0, 3.0),
        "swiglu_alpha": (1.702, 0.5),
        "swiglu_limit": (0.3, 7.0),
        "layer_types": (
            *(["full_attention", *(["minimax_m3_sparse"] * 2)], ["minimax_m3_sparse"] * 3),
            *(["minimax_m3_sparse", "full_attention", "minimax_m3_sparse"], ["full_attention"] * 3),
        ),
        "mlp_layer_types": (["dense", "sparse", "sparse"], ["sparse"] * 3, ["sparse", "dense", "dense"]),
        "index_n_heads": (None,) * 19 + (1,),
        "index_head_dim": (None,) * 19 + (32,),
        "index_block_size": (1, 3, 4, 7),
        "index_topk_blocks": (1, 2, 3, 5),
        "index_local_blocks": (0, 1, 1, 2),
    },
    tower={**sizes.PIXTRAL, "patch_size": 4, "image_size": 56},
    beside={"projector_hidden_size": 24},
    as_published=_minimax_m3_vl,
    alike={
        "index_n_heads": "num_key_value_heads",
        "index_head_dim": "head_dim",
        "shared_intermediate_size": "intermediate_size",
    },
)

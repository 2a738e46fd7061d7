"""The first layers of published checkpoints in each of the formats that publishers make of them. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.memory.checkpoints import DATA, published_config

RECORDED = DATA / "sglang_quantized.json"
_IGNORED = ["lm_head"]
_WEIGHTS = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
_ROW = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}
_WHOLE = {**_WEIGHTS, "strategy": "tensor"}
_INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
_FP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
_BLOCKS = {**_WEIGHTS, "strategy": "block", "block_structure": [128, 128]}


def _compressed(form: str, weights: Mapping[str, Any], inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    told = {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed"}
    return {**told, "config_groups": {"group_0": group}, "ignore": _IGNORED}


SECTIONS: dict[str, dict[str, Any]] = {
    "fp8 a row": _compressed("float-quantized", _WEIGHTS, _ROW),
    "fp8 a tensor": _compressed("float-quantized", _WHOLE, _WHOLE),
    "fp8 a block": _compressed("float-quantized", _BLOCKS, {**_ROW, "strategy": "group", "group_size": 128}),
    "int8": _compressed("int-quantized", {**_WEIGHTS, "type": "int"}, {**_ROW, "type": "int"}),
    "int4": _compressed("pack-quantized", _INT4, None),
    "nvfp4": _compressed("nvfp4-pack-quantized", _FP4, {**_FP4, "dynamic": "local"}),
    "nvfp4 of weights": _compressed("nvfp4-pack-quantized", _FP4, None),
    "modelopt fp8": {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": _IGNORED},
    "modelopt nvfp4": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "group_size": 16,
        "ignore": _IGNORED,
    },
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "fp8 blocks": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
}
# So many layers of each, its mixers in this order, and what of its lists is told otherwise.
FIRST: dict[str, dict[str, Any]] = {
    "ibm-granite/granite-4.0-h-small": {"num_hidden_layers": 2, "layer_types": ["mamba", "attention"]},
    "LiquidAI/LFM2-1.2B": {"num_hidden_layers": 3, "full_attn_idxs": [2]},
    "LiquidAI/LFM2-8B-A1B": {
        "num_hidden_layers": 3,
        "num_dense_layers": 1,
        "layer_types": ["conv", "conv", "full_attention"],
    },
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": {
        "num_hidden_layers": 3,
        "linear_attn_config": {"kda_layers": [1, 2], "full_attn_layers": [3]},
    },
    "tiiuae/Falcon-H1-34B-Instruct": {"num_hidden_layers": 1},
    "arcee-ai/Trinity-Mini": {
        "num_hidden_layers": 3,
        "num_experts": 8,
        "layer_types": [*["sliding_attention"] * 2, "full_attention"],
    },
    "internlm/internlm2_5-7b": {
        "num_hidden_layers": 1,
        "auto_map": {"AutoConfig": "configuration_internlm2.InternLM2Config"},
        "pad_token_id": 2,
    },
    "internlm/internlm3-8b-instruct": {"num_hidden_layers": 1},
    "IQuestLab/IQuest-Coder-V1-40B-Instruct": {"num_hidden_layers": 1},
    "swiss-ai/Apertus-8B-Instruct-2509": {"num_hidden_layers": 1},
    "a/minicpm-4-8b-by-factors-of-one": {"num_hidden_layers": 1},
    "OrionStarAI/Orion-14B-Base": {"num_hidden_layers": 1},
    "xverse/XVERSE-13B": {"num_hidden_layers": 1},
    "a/tele-flm-52b-from-memory": {"num_hidden_layers": 1},
    "bigcode/starcoder2-7b": {"num_hidden_layers": 1},
    "a/glm-4-9b-chat-from-memory": {"num_layers": 1},
    "Qwen/Qwen-7B": {"num_hidden_layers": 1},
    "baichuan-inc/Baichuan2-7B-Base": {"num_hidden_layers": 1},
    "LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct": {"num_layers": 1},
    "microsoft/phi-2": {"num_hidden_layers": 1},
    "stabilityai/stablelm-2-1_6b": {"num_hidden_layers": 1},
    "allenai/OLMo-7B-0424-hf": {"num_hidden_layers": 1},
    "a/seed-oss-36b-by-its-card": {"num_hidden_layers": 1},
    "microsoft/Phi-4-multimodal-instruct": {"num_hidden_layers": 1},
    "a/glm-5.3-flash-as-its-classes-have-it": {
        "text_config": {
            "num_hidden_layers": 3,
            "first_k_dense_replace": 1,
            "layer_types": ["linear_attention", "indexed_attention", "linear_attention"],
            "mlp_layer_types": ["dense", "sparse", "sparse"],
        },
        "vision_config": {"depth": 1},
    },
    "a/nanbeige-4.2-3b-from-memory": {"num_hidden_layers": 1},
    "a/spark-2.5-of-the-sizes-of-its-class": {
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "a/hy4-preview-as-its-classes-have-it": {
        "num_hidden_layers": 3,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "layer_types": ["deepseek_sparse_attention"] * 3,
        "indexer_types": ["full", "shared", "shared"],
    },
    "google/gemma-3n-E4B-it": {
        "text_config": {
            "num_hidden_layers": 3,
            "intermediate_size": [16384] * 3,
            "layer_types": ["sliding_attention", "full_attention", "full_attention"],
            "num_kv_shared_layers": 1,
            "activation_sparsity_pattern": [0.95, 0.0, 0.0],
        }
    },
    "a/llama-3.2-11b-vision-from-memory": {
        "text_config": {"num_hidden_layers": 2, "cross_attention_layers": [1]},
        "vision_config": {"num_hidden_layers": 1, "num_global_layers": 1},
    },
    "a/sdar-8b-from-memory": {"num_hidden_layers": 1},
    "a/sdar-30b-a3b-from-memory": {"num_hidden_layers": 1},
    "stepfun-ai/Step3-VL-10B": {"text_config": {"num_hidden_layers": 1}, "vision_config": {"layers": 1}},
    "a/lfm2-1.2b-beside-a-siglip-2": {
        "text_config": {"num_hidden_layers": 3, "full_attn_idxs": [2]},
        "vision_config": {"num_hidden_layers": 1},
    },
    "Qwen/Qwen3.8-Flash-Next": {
        "text_config": {
            "num_hidden_layers": 4,
            "num_experts": 16,
            "layer_types": [*["linear_attention"] * 3, "full_attention"],
        },
        "vision_config": {"depth": 1},
    },
    "a/llada2-mini-from-memory": {"num_hidden_layers": 2, "num_experts": 64},
    "a/llava-v1.5-7b-from-memory": {"num_hidden_layers": 1},
    "a/llava-v1.6-mistral-7b-from-memory": {"num_hidden_layers": 1},
    "a/llava-onevision-qwen2-7b-from-memory": {"num_hidden_layers": 1},
    "a/sarvam-105b-from-its-classes": {"num_hidden_layers": 2, "num_experts": 8},
    "a/iquest-coder-v1-40b-loop-instruct-from-memory": {"num_hidden_layers": 1},
    "openbmb/MiniCPM-SALA": {"num_hidden_layers": 2, "mixer_types": ["minicpm4", "lightning-attn"]},
    "openai-community/gpt2-medium": {"n_layer": 1},
    "facebook/opt-6.7b": {"num_hidden_layers": 1},
    "a/minicpm-v-2.6-from-memory": {"num_hidden_layers": 1, "vision_config": {"num_hidden_layers": 1}},
    "a/minicpm-v-4-from-memory": {"num_hidden_layers": 1, "vision_config": {"num_hidden_layers": 1}},
    "a/minicpm-v-4.5-from-memory": {"num_hidden_layers": 1, "vision_config": {"num_hidden_layers": 1}},
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": {
        "num_hidden_layers": 3,
        "block_configs": [
            {
                "attention": {"no_op": no, "n_heads_in_group": 8},
                "ffn": {"no_op": not share, "ffn_mult": share},
            }
            for no, share in ((False, 2.625), (True, 0.5), (False, None))
        ],
    },
    "a/janus-pro-7b-from-memory": {"language_config": {"num_hidden_layers": 2}},
    "a/nvila-8b-around-qwen2.5-7b": {"text_config": {"num_hidden_layers": 2}},
    "a/locate-anything-3b-around-qwen2.5-3b": {"text_config": {"num_hidden_layers": 2}},
    "a/mimo-v2.5-asr-from-memory": {"num_hidden_layers": 2},
    "PaddlePaddle/PaddleOCR-VL": {"num_hidden_layers": 1, "vision_config": {"num_hidden_layers": 1}},
    "Qwen/Qwen3-Omni-30B-A3B-Instruct": {
        "thinker_config": {
            "text_config": {"num_hidden_layers": 1},
            "vision_config": {"depth": 1, "deepstack_visual_indexes": [0]},
            "audio_config": {"num_hidden_layers": 1, "encoder_layers": 1},
        },
    },
    "a/voxtral-mini-3b-from-its-classes": {
        "text_config": {"num_hidden_layers": 1},
        "audio_config": {"num_hidden_layers": 1},
    },
    "a/points-reader-around-qwen2.5-3b": {
        "llm_config": {"num_hidden_layers": 1},
        "vision_config": {"depth": 1},
    },
    "a/step3-from-memory": {
        "text_config": {"num_hidden_layers": 2, "moe_layers_enum": "1"},
        "vision_config": {"num_hidden_layers": 1},
    },
}


# What of each SGLang's class has plain whatever is listed, and towers: its own lists have to say so.
_PLAIN: dict[str, tuple[str, ...]] = {
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": ("kv_b_proj",),
    "tiiuae/Falcon-H1-34B-Instruct": ("mamba",),
    "arcee-ai/Trinity-Mini": ("mlp.experts",),
    **dict.fromkeys(("stabilityai/stablelm-2-1_6b", "allenai/OLMo-7B-0424-hf"), ("self_attn",)),
    "google/gemma-3n-E4B-it": (
        *("audio_tower", "vision_tower", "embed_vision", "embed_audio", "altup", "laurel"),
        *("per_layer_input_gate", "per_layer_projection", "per_layer_model_projection"),
    ),
    "a/llama-3.2-11b-vision-from-memory": ("vision_model", "multi_modal_projector"),
    "stepfun-ai/Step3-VL-10B": ("vision_model", "vit_large_projector"),
    "a/glm-5.3-flash-as-its-classes-have-it": ("visual",),
    "Qwen/Qwen3.8-Flash-Next": ("visual", "in_proj_b", "in_proj_a"),
    "a/sarvam-105b-from-its-classes": ("kv_b_proj",),
    **dict.fromkeys((f"a/minicpm-v-{one}-from-memory" for one in ("2.6", "4", "4.5")), ("vpm", "resampler")),
    "a/spark-2.5-of-the-sizes-of-its-class": ("g_proj",),
    "a/lfm2-1.2b-beside-a-siglip-2": ("vision_tower", "multi_modal_projector"),
    "PaddlePaddle/PaddleOCR-VL": ("visual", "mlp_AR"),
    "a/points-reader-around-qwen2.5-3b": ("vision_encoder", "vision_projector"),
}


def config_of(name: str, section: str) -> dict[str, Any]:
    told = published_config(name)
    plain = _PLAIN.get(name)
    listed = {} if plain is None else _listed(SECTIONS[section], plain)
    return {**_with(told, FIRST[name]), "quantization_config": {**SECTIONS[section], **listed}}


def _with(told: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Sections keep what is not changed in them."""
    return {**told, **{key: _changed(told.get(key), value) for key, value in changes.items()}}


def _changed(old: Any, new: Any) -> Any:
    return _with(old, new) if isinstance(old, Mapping) and isinstance(new, Mapping) else new


def _listed(section: Mapping[str, Any], plain: Iterable[str]) -> dict[str, Any]:
    method = section["quant_method"]
    if method == "gptq":
        return {"dynamic": {f"-:.*{one}.*": {} for one in plain}}
    if method in ("compressed-tensors", "modelopt"):
        around = "re:.*{}.*" if method == "compressed-tensors" else "*{}*"
        return {"ignore": [*_IGNORED, *map(around.format, plain)]}
    return {"modules_to_not_convert": [*plain]}

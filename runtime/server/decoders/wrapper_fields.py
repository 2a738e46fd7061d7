"""What the files of some multimodal models have to tell of their text, and what their classes have for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MIMO_V2 = (
    *("num_key_value_heads", "head_dim", "v_head_dim", "swa_num_attention_heads", "swa_num_key_value_heads"),
    *("swa_head_dim", "swa_v_head_dim", "hybrid_layer_pattern", "moe_layer_freq", "sliding_window_size"),
    *("layernorm_epsilon", "max_position_embeddings", "partial_rotary_factor", "rope_theta"),
    *("swa_rope_theta", "attention_bias", "attention_value_scale", "add_swa_attention_sink_bias"),
    *("add_full_attention_sink_bias", "intermediate_size", "moe_intermediate_size", "n_routed_experts"),
    *("num_experts_per_tok", "n_group", "topk_group", "norm_topk_prob", "scoring_func", "topk_method"),
)
# Its file says that it is a Qwen2.
TEXT_ALONE: Mapping[str, Any] = {"quantizes_text": "whoever says so", "is_alike": True}
MIMO_V2_ASR: Mapping[str, Any] = {
    **{"section": "", "is_flat": True, "is_named": False, "is_plain_alone": True, **TEXT_ALONE},
    "beside": ("its audio_tokenizer",),
}
ERNIE = (
    *("num_key_value_heads", "intermediate_size", "max_position_embeddings", "rms_norm_eps", "rope_theta"),
    *("hidden_act", "use_bias", "tie_word_embeddings", "moe_num_experts", "moe_intermediate_size", "moe_k"),
    *("moe_num_shared_experts", "moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval"),
    *("pixel_hidden_size", "spatial_conv_size", "temporal_conv_size"),
)
PADDLE = (
    *("num_key_value_heads", "intermediate_size", "max_position_embeddings", "rms_norm_eps", "head_dim"),
    *("hidden_act", "use_bias", "tie_word_embeddings"),
)
# SGLang's DeepseekV2Config (srt/configs/deepseekvl2.py), which reads Kimi-VL's text.
KIMI_VL = {
    "intermediate_size": 11008, "moe_intermediate_size": 1407, "n_shared_experts": None,
    "n_routed_experts": None, "routed_scaling_factor": 1.0, "topk_method": "gready", "n_group": None,
    "topk_group": None, "num_experts_per_tok": None, "first_k_dense_replace": 0, "norm_topk_prob": False,
    "scoring_func": "softmax", "max_position_embeddings": 2048,
}  # fmt: skip
# ... and dots.vlm's, whose other defaults are those of a V3
DOTS_VLM = (
    *("intermediate_size", "moe_intermediate_size", "n_shared_experts", "n_routed_experts"),
    *("routed_scaling_factor", "topk_method", "n_group", "topk_group", "num_experts_per_tok"),
    *("first_k_dense_replace", "norm_topk_prob", "scoring_func", "max_position_embeddings"),
)
# ... and DeepSeek-VL2's, of which published files leave out much
DEEPSEEK_VL2 = {
    **KIMI_VL, "vocab_size": 102400, "hidden_size": 4096, "num_hidden_layers": 30, "num_attention_heads": 32,
}  # fmt: skip
DEEPSEEK_OCR = {"use_mla": True, "topk_method": "gready"}
# What it reads by one class, and its pool of keys by another.
OF_THE_POOL = ("use_mla", "v_head_dim", "num_key_value_heads", "max_position_embeddings")
# srt/configs/unlimited_ocr.py
UNLIMITED_OCR: Mapping[str, Any] = {
    **{"section": "language_config", "tied_by": "either", "is_named": False, "needs": OF_THE_POOL},
    "text_defaults": DEEPSEEK_OCR,
    **TEXT_ALONE,
}
# Classes of its checkpoints' own read it, and SGLang's has neither a default of theirs nor stages.
_SEEING_LAYER = "vpm.encoder.layers.0."
MINICPM_V: Mapping[str, Any] = {
    **{"section": "", "is_flat": True, "hides_text": True, "is_quantized": True, "is_alike": True},
    "tower": (
        *(f"{_SEEING_LAYER}{one}" for one in ("self_attn.qkv_proj", "self_attn.proj", "mlp.fc1", "mlp.fc2")),
        "resampler.kv_proj",
    ),
    "by_version": {"2.6": "qwen2", "4.0": "llama", "4.5": "qwen3"},
    "needs": (
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
        *("num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "hidden_act", "rope_theta"),
        "tie_word_embeddings",
    ),
}
# A Qwen2 that its class makes twice.
MINICPM_O: Mapping[str, Any] = {
    **{"section": "", "is_flat": True, "is_named": False, "hides_text": True, "is_plain_alone": True},
    **{"is_made_twice": True, "needs": MINICPM_V["needs"]},
}
MINICPM_V_4_6: Mapping[str, Any] = {
    "served": ("qwen3_5_text",),
    "needs": ("model_type",),
    **{"hides_text": True, "is_quantized": True},
}
MUSE_SPARK: Mapping[str, Any] = {"tied_by": "either", "is_named": False}
# Both read text whose angles begin below 0, and bailing_mm_v3.py gives a matrix of its tower its method.
_SEES = {"video_rope": True}
LING_3_VL: Mapping[str, Any] = {
    **{"may_be_whole": True, "is_named": False, "is_alike": True, "text_defaults": _SEES},
    "tower": ("visual.blocks.0.attn.qkv_proj",),
}
# SGLang's BailingMoeV2Config (srt/configs/bailing_moe_v2.py), which reads Ming's text.
MING_TEXT = {
    "vocab_size": 30592, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
    "use_qk_norm": False, "use_bias": True, "rms_norm_eps": 1e-5, "max_position_embeddings": 16384,
    "rope_theta": 10000.0, "num_experts": 16, "num_shared_experts": 0, "num_experts_per_tok": 2,
    "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5, "first_k_dense_replace": 0,
    "partial_rotary_factor": 0.5, "norm_topk_prob": True, "moe_router_enable_expert_bias": False,
    **_SEES,
}  # fmt: skip
MING: Mapping[str, Any] = {
    **{"section": "llm_config", "is_named": False, "text_defaults": MING_TEXT},
    "needs": ("intermediate_size", "num_key_value_heads", "moe_intermediate_size"),
}
# step3_vl_10b.py: what it calls them has a dot too many.
_STEP_LAYER = "vision_model..transformer.resblocks.0."
STEP = (
    *(f"{_STEP_LAYER}{one}" for one in ("attn.qkv_proj", "attn.proj", "mlp.fc1", "mlp.fc2")),
    "vit_large_projector.",
)
UNIFIED = ("hidden_size_per_layer_input",)  # which SGLang reads by one class until 0.5.15, then by another
NEMOTRONS = ("NemotronH_Nano_VL_V2", "NemotronH_Nano_Omni_Reasoning_V3", "nemotron_h_omni")
LLMS = {"Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3_moe"}
S1 = dict(LLMS)
LLMS |= {"GptOssForCausalLM": "gpt_oss", "InternLM2ForCausalLM": "internlm2"}
LARGE_3 = {"MistralLarge3ForCausalLM": "deepseek_v3"}  # by a params.json
# By the names of srt/models/paddleocr_vl.py; MLPs of the tower have a method where 64 divides their widths.
_READING_LAYER = "visual.vision_model.encoder.layers.0."
PADDLE_OCR: Mapping[str, Any] = {
    **{"is_flat": True, "is_quantized": True, "reads_plain": True, "is_alike": True, "needs": PADDLE},
    "tower": tuple(
        f"{_READING_LAYER}{one}" for one in ("self_attn.qkv_proj", "self_attn.proj", "mlp.fc1", "mlp.fc2")
    ),
}
# A Qwen2 by a class in a file beside it, and by the names of srt/models/points_v15_chat.py.
_POINTING_LAYER = "vision_encoder.blocks.0."
POINTS: Mapping[str, Any] = {
    **{"section": "llm_config", "is_quantized": True, "is_named": False, "is_alike": True},
    **{"reads_plain": True},
    "tower": (
        *(f"{_POINTING_LAYER}{one}" for one in ("attn.qkv_proj", "attn.proj", "mlp.fc1", "mlp.fc2")),
        *(f"vision_projector.mlp.{n}" for n in (0, 2)),
    ),
    "needs": (
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
        *("num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "hidden_act", "rope_theta"),
        "tie_word_embeddings",
    ),
}
# ... as a Qwen2.5-Omni's text.
MIDASHENG: Mapping[str, Any] = {
    **{"is_named": False, "is_plain_alone": True, "needs": (*POINTS["needs"], "use_sliding_window")},
}
# A Llama by a class in a file beside it, in a part that SGLang does not look into.
SARASHINA: Mapping[str, Any] = {
    **{"served": ("llama",), "is_quantized": True, "hides_text": True, "is_plain_alone": True},
    "needs": (
        *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
        *("num_attention_heads", "num_key_value_heads", "max_position_embeddings", "rms_norm_eps"),
        *("hidden_act", "tie_word_embeddings"),
    ),
}
# A Qwen2 by a class in a file beside it, in such a part.
NVILA: Mapping[str, Any] = {
    **{**SARASHINA, "served": ("qwen2",), "is_quantized": False, **TEXT_ALONE},
    "needs": (*SARASHINA["needs"], "rope_theta"),
}
# By the names of srt/models/gemma3n_mm.py, of each kind of what it hears and joins with.
_EARS_LAYER = "model.audio_tower.conformer.0."
GEMMA3N: Mapping[str, Any] = {
    **{"tied_by": "both", "reads_plain": True},
    "tower": (
        *(f"model.{one}.embedding_projection" for one in ("embed_vision", "embed_audio")),
        "model.audio_tower.subsample_conv_projection.input_proj_linear",
        *(f"{_EARS_LAYER}ffw_layer_{where}.ffw_layer_{n}" for where in ("start", "end") for n in (1, 2)),
        *(
            f"{_EARS_LAYER}attention.attn.{one}"
            for one in ("qkv_proj", "relative_position_embedding.pos_proj")
        ),
        *(f"{_EARS_LAYER}{one}" for one in ("attention.post", "lconv1d.linear_start", "lconv1d.linear_end")),
    ),
}
# By the names of srt/models/mllama.py
_EYES = tuple(f"vision_model.{one}.layers.0." for one in ("transformer", "global_transformer"))
MLLAMA: Mapping[str, Any] = {
    **{"tied_by": "either", "is_quantized": True, "reads_plain": True},
    "tower": (
        *(
            f"{eye}{one}"
            for eye in _EYES
            for one in ("self_attn.qkv_proj", "self_attn.proj", "mlp.fc1", "mlp.fc2")
        ),
        "multi_modal_projector",
    ),
}
# A Qwen3, by a class in a file beside it, of which some layers attend to images.
MOSS_VL: Mapping[str, Any] = {
    **{"tied_by": "either", "is_named": False, "is_plain_alone": True},
    "needs": (
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
        *("num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta"),
        *("attention_bias", "cross_attention_layers"),
    ),
}
# A Phi 3 by a class in a file beside it.
PHI4MM: Mapping[str, Any] = {
    **{"section": "", "is_flat": True, "is_named": False, "is_plain_alone": True},
    **{"quantizes_text": "its file", "is_alike": True},
    "needs": (
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
        *("num_key_value_heads", "max_position_embeddings", "original_max_position_embeddings"),
        *("rms_norm_eps", "hidden_act", "rope_theta", "partial_rotary_factor", "tie_word_embeddings"),
    ),
}
# Its class calls layers as a model of text does, whatever its files call them: Mistral 3's, too.
LLAVA: Mapping[str, Any] = {
    "is_alike": True,
    "text_defaults": {
        "vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    },
}  # fmt: skip
# Around a Llama alone, by SGLang's MultiModalityConfig (srt/configs/janus_pro.py).
JANUS: Mapping[str, Any] = {
    **{"section": "language_config", "served": ("llama",), "is_plain_alone": True, **TEXT_ALONE},
    "text_defaults": LLAVA["text_defaults"],
}
# LLaVA's own checkpoints are flat, and read by LlavaConfig, which has nothing of a text: what a file leaves
# out no class of transformers' fills in, and SGLang's take a base of 10,000.
_LLAVAS_OWN = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "hidden_act", "tie_word_embeddings"),
    *("mm_hidden_size", "mm_vision_tower", "mm_vision_select_layer"),
)
LLAVA_TEXTS = {
    "LlavaLlamaForCausalLM": "llama",
    "LlavaQwenForCausalLM": "qwen2",
    "LlavaMistralForCausalLM": "mistral",
    "LlavaVidForCausalLM": "llama",
}
LLAVAS_OWN: Mapping[str, Any] = {
    **{"section": "", "is_flat": True, "is_named": False, "needs": _LLAVAS_OWN},
    **{"reads_another": True, "is_plain_alone": True, **TEXT_ALONE},
}
# Around a Qwen2 or a Llama alone, by SGLang's classes; what their texts leave out transformers' have.
_QWEN2 = {
    "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
}  # fmt: skip
QWEN2_AUDIO: Mapping[str, Any] = {"served": ("qwen2",), "is_alike": True, "text_defaults": _QWEN2}
# srt/configs/locate_anything.py
LOCATE_ANYTHING: Mapping[str, Any] = {
    **{"served": ("qwen2",), "text_defaults": _QWEN2, "is_plain_alone": True, "is_split_later": True},
    **TEXT_ALONE,
}
GLM_ASR: Mapping[str, Any] = {
    **{"served": ("llama",), "is_alike": True},
    "text_defaults": {
        "vocab_size": 59264, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
    },
}  # fmt: skip
# srt/models/qwen3_omni_moe.py and voxtral.py give matrices of their ears no names, so no list means these.
_NAMELESS: Mapping[str, Any] = {"is_alike": True, "tower": ("",), "reads_plain": True}
QWEN_3_OMNI: Mapping[str, Any] = {
    **{"inside": "thinker_config", "tied_by": "whole", "is_quantized": True, **_NAMELESS},
}
VOXTRAL: Mapping[str, Any] = {
    **{"served": ("llama",), "is_quantized": True, **_NAMELESS},
    "text_defaults": {
        "vocab_size": 131072, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 30,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "rope_theta": 1e8, "head_dim": 128,
    },
}  # fmt: skip

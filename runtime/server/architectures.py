"""Architectures by what SGLang's rules for attention, graphs and memory have in common for them.

A release refuses an architecture that it does not know, so only what changed for a known one is a release's.
"""

from __future__ import annotations

# configs/model_config.py: attention_arch
MLA = frozenset({
    "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV3ForCausalLMNextN",
    "DeepseekV32ForCausalLM", "DeepseekVL2ForCausalLM", "Eagle3DeepseekV2ForCausalLM",
    "MiniCPM3ForCausalLM", "SarvamMLAForCausalLM", "Glm4MoeLiteForCausalLM", "Glm4MoeLiteForCausalLMNextN",
    "GlmMoeDsaForCausalLM", "GlmMoeDsaForCausalLMNextN", "Glm5NextForConditionalGeneration",
    "Glm5NextForConditionalGenerationNextN", "GigaChat35ForCausalLM", "GigaChat35ForCausalLMNextN",
    "LongcatFlashForCausalLM", "LongcatFlashForCausalLMNextN", "HYV4ForCausalLM", "HYV4ForCausalLMNextN",
    "DotsVLMForCausalLM", "Dots3NoteForCausalLM", "Dots3NoteForCausalLMNextN", "MistralLarge3ForCausalLM",
    "MistralLarge3ForCausalLMEagle", "PixtralForConditionalGeneration", "KimiVLForConditionalGeneration",
    "KimiK25ForConditionalGeneration", "KimiLinearForCausalLM", "KimiK3LinearForCausalLM",
    "KimiK3ForConditionalGeneration", "BailingMoeV2_5ForCausalLM", "BailingMoeV3ForCausalLM",
    "BailingMoeV3VLForConditionalGeneration",
})  # fmt: skip
# ... only where the checkpoint has compressed KV rows
MLA_WITH_LATENTS = frozenset({"PixtralForConditionalGeneration", "BailingMoeForCausalLMNextN"})

# is_deepseek_dsa in the same file: sparse where the checkpoint says index_topk
SPARSE = frozenset({
    "DeepseekV3ForCausalLM", "DeepseekV3ForCausalLMNextN", "DeepseekV32ForCausalLM",
    "MistralLarge3ForCausalLM", "PixtralForConditionalGeneration", "GlmMoeDsaForCausalLM",
    "GlmMoeDsaForCausalLMNextN", "Dots3NoteForCausalLM", "Glm5NextForConditionalGeneration",
    "HYV4ForCausalLM", "HYV4ForCausalLMNextN",
})  # fmt: skip
LONGCAT = frozenset({"LongcatFlashForCausalLM", "LongcatFlashForCausalLMNextN"})
DEEPSEEK_V4 = frozenset(
    {"DeepseekV4ForCausalLM", "DeepseekV4ForCausalLMNextN", "DeepseekV4ForCausalLMDSpark"}
)
# arg_groups/overrides.py: whose attention and KV cache DeepSeek's rules set
DEEPSEEK_FAMILY = frozenset({
    "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "KimiK25ForConditionalGeneration",
    "MistralLarge3ForCausalLM", "PixtralForConditionalGeneration", "GlmMoeDsaForCausalLM",
    "Dots3NoteForCausalLM", "Glm5NextForConditionalGeneration", "HYV4ForCausalLM", "HYV4ForCausalLMNextN",
})  # fmt: skip

# configs/model_config.py: multimodal_model_archs
MULTIMODAL = frozenset({
    "BailingMM2NativeForConditionalGeneration", "BailingMMNativeForConditionalGeneration",
    "BailingMoeV3VLForConditionalGeneration", "CLIPModel", "Cohere2VisionForConditionalGeneration",
    "Cosmos3EdgeForConditionalGeneration", "DeepseekOCRForCausalLM", "DeepseekVL2ForCausalLM",
    "DiffusionGemmaForBlockDiffusion", "Dots3NoteForCausalLM", "DotsOCRForCausalLM", "DotsVLMForCausalLM",
    "EmbeddingGemma2Model", "Ernie4_5_VLMoeForConditionalGeneration", "Gemma3ForConditionalGeneration",
    "Gemma3nForConditionalGeneration", "Gemma4ForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration", "Glm4vForConditionalGeneration",
    "Glm4vMoeForConditionalGeneration", "Glm5NextForConditionalGeneration",
    "GlmAsrForConditionalGeneration", "GlmImageForConditionalGeneration", "GlmOcrForConditionalGeneration",
    "Grok1AForCausalLM", "Grok1VForCausalLM", "InternS1ForConditionalGeneration",
    "InternS1ProForConditionalGeneration", "InternS2MobiusForConditionalGeneration",
    "InternS2PreviewForConditionalGeneration", "InternVLChatModel", "JetVLMForConditionalGeneration",
    "KimiK25ForConditionalGeneration", "KimiVLForConditionalGeneration", "Lfm2VlForConditionalGeneration",
    "LightOnOCRForConditionalGeneration", "Llama4ForConditionalGeneration", "LlavaForConditionalGeneration",
    "LlavaLlamaForCausalLM", "LlavaMistralForCausalLM", "LlavaQwenForCausalLM", "LlavaVidForCausalLM",
    "LocateAnythingForConditionalGeneration", "MiDashengLMModel", "MiMoV2ASRForCausalLM",
    "MiMoV2ForCausalLM", "MiniCPMO", "MiniCPMV", "MiniMaxM3SparseForConditionalGeneration",
    "Mistral3ForConditionalGeneration", "MllamaForConditionalGeneration", "MossVLForConditionalGeneration",
    "MultiModalityCausalLM", "MuseGlimmerForConditionalGeneration", "MuseSparkForConditionalGeneration",
    "NVILAForConditionalGeneration", "NVILALiteForConditionalGeneration",
    "NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Nano_VL_V2", "NemotronH_Omni_Reasoning_V3",
    "POINTSV15ChatModel", "PaddleOCRVLForConditionalGeneration", "Phi4MMForCausalLM",
    "PixtralForConditionalGeneration", "Qwen2AudioForConditionalGeneration",
    "Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration",
    "Qwen3ASRForConditionalGeneration", "Qwen3OmniMoeForConditionalGeneration",
    "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration",
    "Qwen4ExpForConditionalGeneration", "Sarashina2VisionForCausalLM", "Step3VLForConditionalGeneration",
    "Step3p7ForConditionalGeneration", "StepVLForConditionalGeneration", "UnlimitedOCRForCausalLM",
    "VoxtralForConditionalGeneration", "WhisperForConditionalGeneration",
})  # fmt: skip
# ... which serve text alone unless --enable-multimodal is given
TEXT_BY_DEFAULT = frozenset({
    "Gemma3ForConditionalGeneration", "Llama4ForConditionalGeneration", "Step3VLForConditionalGeneration",
    "InklingForConditionalGeneration",
})  # fmt: skip
MIMO_V2 = frozenset({"MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM"})
# is_multimodal_chunked_prefill_supported
UNCHUNKED = frozenset({
    "Grok1VForCausalLM", "Grok1AForCausalLM", "LlavaLlamaForCausalLM", "MllamaForConditionalGeneration",
    "MossVLForConditionalGeneration", "CLIPModel",
})  # fmt: skip
QWEN3_VL = frozenset({"Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"})
EMBEDDING = {"EmbeddingGemma2Model": 8192}  # and the longest context
QWEN3_VL_TYPES = frozenset({"qwen3_vl", "qwen3_vl_moe"})  # as model_type
# utils/hf_transformers/config.py: an encoder that its config.json does not describe, by layers and width
ENCODERS = {"Phi4MMForCausalLM": (26, 1152)}
MINICPM_SALA = "MiniCPMSALAForCausalLM"
HRM_TEXT = "HrmTextForCausalLM"
MUSE_SPARK = "MuseSparkForConditionalGeneration"
INKLING = frozenset({"InklingForConditionalGeneration", "InklingForConditionalGenerationMTP"})
MUSE_GLIMMER = frozenset({"MuseGlimmerForCausalLM", "MuseGlimmerForConditionalGeneration"})
COHERE_VISION = frozenset({"Cohere2VisionForConditionalGeneration"})
MINIMAX_M3 = frozenset({"MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"})
GLM_5_NEXT = frozenset({"Glm5NextForConditionalGeneration"})
KIMI_K25 = frozenset({"KimiK25ForConditionalGeneration"})
QWEN3_5 = frozenset({"Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"})

# SWA_SINK_ARCHS
SINKS = frozenset({
    "GptOssForCausalLM", "GraniteMoeSWAForCausalLM", "GraniteSWAForCausalLM", "IQuestQ1ForCausalLM",
    "IQuestQ1MTP",
})  # fmt: skip

# arg_groups/overrides.py: layers with a recurrent state beside those with a KV cache
NEMOTRON_H = frozenset({"NemotronHForCausalLM", "NemotronHPuzzleForCausalLM"})
QWEN_HYBRID = frozenset({
    "Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration",
    "InternS2PreviewForConditionalGeneration", "InternS2MobiusForConditionalGeneration",
})  # fmt: skip
TRITON_HYBRID = frozenset({
    "FalconH1ForCausalLM", "JetNemotronForCausalLM", "JetVLMForConditionalGeneration",
    "MiniCPMV4_6ForConditionalGeneration", "MiniCPMV4_7ForConditionalGeneration",
})  # fmt: skip
LFM2 = frozenset({"Lfm2ForCausalLM", "Lfm2MoeForCausalLM"})
GRANITE_HYBRID = frozenset({"GraniteMoeHybridForCausalLM"})
HYBRID = NEMOTRON_H | QWEN_HYBRID | TRITON_HYBRID | LFM2 | INKLING | {
    "KimiLinearForCausalLM", "KimiK3ForConditionalGeneration", "BailingMoeV2_5ForCausalLM",
    "BailingMoeV3ForCausalLM", "BailingMoeV3VLForConditionalGeneration", "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForCausalLM", "Qwen4ExpForConditionalGeneration", "NemotronH_Omni_Reasoning_V3",
    "ZayaForCausalLM", "Glm5NextForConditionalGeneration", "GigaChat35ForCausalLM",
    "MiniCPMSALAForCausalLM",
}  # fmt: skip
# ... whose state can be kept for prefixes while batches overlap
KEEPS_STATES = HYBRID - LFM2 - INKLING - {
    "JetNemotronForCausalLM", "JetVLMForConditionalGeneration", "ZayaForCausalLM", "KimiLinearForCausalLM",
    "GigaChat35ForCausalLM", "MiniCPMSALAForCausalLM", "InternS2MobiusForConditionalGeneration",
} | GRANITE_HYBRID  # fmt: skip

GEMMA_4 = frozenset({
    "Gemma4ForConditionalGeneration", "Gemma4ForCausalLM", "Gemma4UnifiedForConditionalGeneration",
})  # fmt: skip
STEP_3P5 = frozenset({"Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"})
SLIDING = frozenset(
    {"Exaone4ForCausalLM", "ExaoneMoEForCausalLM", "ExaoneMoeForCausalLM", "Olmo2ForCausalLM"}
)
# _handle_encoder_disaggregation, arg_groups/pd_disaggregation_hook.py
ENCODED_ELSEWHERE = QWEN3_VL | QWEN3_5 | KIMI_K25 | {
    "Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration",
    "InternS2PreviewForConditionalGeneration", "Qwen3OmniMoeForConditionalGeneration",
    "Qwen2AudioForConditionalGeneration", "Qwen2_5OmniForConditionalGeneration",
    "KimiVLForConditionalGeneration", "KimiK3ForConditionalGeneration", "MiMoV2ForCausalLM",
    "Dots3NoteForCausalLM", "Glm5NextForConditionalGeneration", "MiniMaxM3SparseForConditionalGeneration",
    "MuseSparkForConditionalGeneration",
}  # fmt: skip
# is_hybrid_swa_model: some layers see a window only
HYBRID_SWA = SINKS | MIMO_V2 | STEP_3P5 | GEMMA_4 | DEEPSEEK_V4 | INKLING | {
    "BeamForCausalLM", "Llama4ForConditionalGeneration", "MiMoV2MTP", "Step3p5MTP", "EmbeddingGemma2Model",
    "DiffusionGemmaForBlockDiffusion", "LagunaForCausalLM", "MellumForCausalLM", "MuseGlimmerForCausalLM",
    "MuseGlimmerForConditionalGeneration", "UnlimitedOCRForCausalLM",
}  # fmt: skip

# ... and of these none has another pool
WINDOWS_ALONE = frozenset({"UnlimitedOCRForCausalLM"})
# ... and model types whose config class says so of itself: srt/configs/dots3.py, spark2_5.py
HYBRID_SWA_TYPES = frozenset({"dots3_note", "spark2_5", "muse_spark"})

# arg_groups/speculative_hook.py, before in server_args.py: --speculative-draft-model-path is --model-path
DRAFTS_FROM_THEIR_PATH = frozenset(
    {
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV4ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
        "HYV3ForCausalLM",
        "HYV4ForCausalLM",
        "Qwen4ExpForConditionalGeneration",
    }
)
# _FLASHINFER_ALLREDUCE_FUSION_ARCHS of arg_groups/overrides.py, before in server_args.py
FUSED_ALL_REDUCE = frozenset(
    {
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "GptOssForCausalLM",
        "GlmMoeDsaForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "KimiK25ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
    }
)

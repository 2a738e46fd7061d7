"""Classes of SGLang's without pipeline stages: srt/models.

Their forward takes nothing of another stage, which support_pp of srt/model_executor/model_runner.py asks for,
or they ask for one stage themselves: SDAR. Llama 4's text alone has all layers on each, and passes nothing
on.
"""

from __future__ import annotations

from runtime.server.embedders import BY_FLAG, OF_BERT, OF_DECODERS

WITHOUT_STAGES = frozenset({
    "AfmoeForCausalLM", "BaichuanForCausalLM", "ChatGLMModel",
    "CohereForCausalLM", "Cohere2ForCausalLM", "Cohere2MoeForCausalLM",
    "Cohere2VisionForConditionalGeneration", "DbrxForCausalLM", "DeepseekForCausalLM",
    "DeepseekOCRForCausalLM", "DeepseekVL2ForCausalLM", "DiffusionGemmaForBlockDiffusion",
    "DotsOCRForCausalLM",
    "Ernie4_5_ForCausalLM",
    "Ernie4_5_MoeForCausalLM", "Ernie4_5_VLMoeForConditionalGeneration", "ExaoneForCausalLM",
    "FalconMambaForCausalLM", "MambaForCausalLM", "Mamba2ForCausalLM",
    "FalconH1ForCausalLM", "GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM",
    "Gemma3TextModel",
    "Gemma3ForConditionalGeneration", "Gemma3nForCausalLM", "Gemma3nForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration", "GraniteForCausalLM", "GraniteMoeForCausalLM",
    "GraniteMoeSharedForCausalLM", "GraniteMoeSWAForCausalLM", "GraniteSWAForCausalLM",
    "GPT2LMHeadModel", "GPTBigCodeForCausalLM", "GPTJForCausalLM",
    "Grok1ForCausalLM", "Grok1ModelForCausalLM",
    "HunYuanDenseV1ForCausalLM", "HunYuanMoEV1ForCausalLM", "HYV3ForCausalLM", "HYV4ForCausalLM",
    "IQuestLoopCoderForCausalLM",
    "IQuestQ1ForCausalLM", "InternLM2ForCausalLM", "InternS1ForConditionalGeneration", "InternVLChatModel",
    "JetNemotronForCausalLM", "KimiVLForConditionalGeneration", "Lfm2ForCausalLM", "Lfm2MoeForCausalLM",
    "Lfm2VlForConditionalGeneration", "LightOnOCRForConditionalGeneration", "Llama4ForCausalLM",
    "Llama4ForConditionalGeneration",
    "LocateAnythingForConditionalGeneration",
    "LlavaLlamaForCausalLM", "LlavaMistralForCausalLM", "LlavaQwenForCausalLM", "LlavaVidForCausalLM",
    "LongcatFlashForCausalLM",
    "MiDashengLMModel", "MiMoForCausalLM", "MiMoV2ASRForCausalLM",
    "MiniCPMForCausalLM", "MiniCPM3ForCausalLM",
    "MiniCPMSALAForCausalLM", "MiniCPMO", "MiniCPMV",
    "MiniCPMV4_6ForConditionalGeneration", "MiniCPMV4_7ForConditionalGeneration",
    "MllamaForConditionalGeneration", "MultiModalityCausalLM", "MuseGlimmerForCausalLM",
    "MuseGlimmerForConditionalGeneration",
    "NanbeigeForCausalLM", "NVILAForConditionalGeneration", "NVILALiteForConditionalGeneration",
    "NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Nano_VL_V2", "NemotronH_Omni_Reasoning_V3",
    "OlmoForCausalLM", "Olmo2ForCausalLM", "OlmoeForCausalLM", "OrionForCausalLM",
    "PaddleOCRVLForConditionalGeneration", "PersimmonForCausalLM", "Phi3SmallForCausalLM",
    "Phi4MMForCausalLM", "PhiForCausalLM",
    "PhiMoEForCausalLM", "PixtralForConditionalGeneration", "Qwen2VLForConditionalGeneration",
    "Sarashina2VisionForCausalLM",
    "QWenLMHeadModel", "QuantMixtralForCausalLM", "Qwen3ASRForConditionalGeneration", "Qwen3NextForCausalLM",
    "Qwen3OmniMoeForConditionalGeneration", "SDARForCausalLM",
    "SDARMoeForCausalLM", "StableLmForCausalLM", "Starcoder2ForCausalLM", "Step3p7ForConditionalGeneration",
    "Step3VLForConditionalGeneration", "StepVLForConditionalGeneration", "UnlimitedOCRForCausalLM",
    "GlmAsrForConditionalGeneration", "POINTSV15ChatModel", "Qwen2AudioForConditionalGeneration",
    "VoxtralForConditionalGeneration", "XverseForCausalLM", "XverseMoeForCausalLM",
}) | OF_DECODERS | BY_FLAG | OF_BERT  # fmt: skip
SINCE_0_5_23 = frozenset({"Mistral3ForConditionalGeneration"})

"""Which of SGLang's classes tell how many experts their layers have, as EPLB and whoever records experts ask.

get_model_config_for_expert_location of srt/models, and its callers in srt/eplb.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.server.backends import Number
from runtime.server.named_classes import named_until

_TELL: Mapping[Number, str] = {
    (0, 5, 12): """
        BailingMoEForCausalLM BailingMoeForCausalLM BailingMoeV2ForCausalLM BailingMoeV2_5ForCausalLM
        DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM DeepseekV4ForCausalLM
        DotsVLMForCausalLM ExaoneMoEForCausalLM Glm4MoeForCausalLM Glm4MoeLiteForCausalLM
        GlmMoeDsaForCausalLM GptOssForCausalLM InternS1ProForConditionalGeneration
        InternS2PreviewForConditionalGeneration KimiK25ForConditionalGeneration LLaDA2MoeModelLM
        LongcatFlashForCausalLM MiMoV2FlashForCausalLM MiMoV2ForCausalLM MindSporeForCausalLM
        MiniMaxM2ForCausalLM MistralLarge3ForCausalLM Qwen2MoeForCausalLM Qwen3MoeForCausalLM
        Qwen3NextForCausalLM Qwen3VLMoeForConditionalGeneration Qwen3_5MoeForConditionalGeneration
        SDARMoeForCausalLM SarvamMLAForCausalLM SarvamMoEForCausalLM Step3VLForConditionalGeneration""",
    (0, 5, 13): "Step3p5ForCausalLM Step3p7ForConditionalGeneration",
    (0, 5, 16): "MellumForCausalLM MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration",
    (0, 5, 17): "Qwen3_5MoeForCausalLM",
    (0, 5, 19): "BailingMoeV3ForCausalLM Dots3NoteForCausalLM",
    (0, 5, 20): """
        Glm5NextForConditionalGeneration K2HorizonForCausalLM Qwen4ExpForConditionalGeneration
        XllmForCausalLM""",
    (0, 5, 21): "BailingMoeV3VLForConditionalGeneration",
    (0, 5, 22): "ExaoneMoeForCausalLM",
    (0, 5, 23): """
        NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Nano_Omni_Reasoning_V3
        NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3""",
}


def tells_experts(architecture: str, release: Number) -> bool:
    return architecture in named_until(release, _TELL)

"""Which of SGLang's classes show what their layers make of a token: to a draft, or to whoever asks a server.

configure_aux_hidden_state_capture of srt/model_executor, which asks a target's class for it by the algorithm.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.server.asked import Asked
from runtime.server.backends import Number
from runtime.server.choices import Choices
from runtime.server.named_classes import named_until

_FIRST: Number = (0, 5, 12)
_EAGLE3: Mapping[Number, str] = {
    _FIRST: """
        ApertusForCausalLM BailingMoEForCausalLM BailingMoeForCausalLM BailingMoeV2ForCausalLM
        DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM ExaoneMoEForCausalLM
        Gemma3ForCausalLM Gemma3ForConditionalGeneration Gemma4ForCausalLM
        Gemma4ForConditionalGeneration Glm4MoeForCausalLM Glm4MoeLiteForCausalLM GlmMoeDsaForCausalLM
        GptOssForCausalLM IQuestCoderForCausalLM InternLM3ForCausalLM
        InternS1ProForConditionalGeneration InternS2PreviewForConditionalGeneration
        KimiK25ForConditionalGeneration Llama4ForCausalLM Llama4ForConditionalGeneration
        LlamaForCausalLM LongcatFlashForCausalLM MindSporeForCausalLM MiniMaxM2ForCausalLM
        Ministral3ForCausalLM MistralForCausalLM MistralLarge3ForCausalLM Phi3ForCausalLM
        Qwen2ForCausalLM Qwen2MoeForCausalLM Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM
        Qwen3MoeForCausalLM Qwen3NextForCausalLM Qwen3VLForConditionalGeneration
        Qwen3VLMoeForConditionalGeneration Qwen3_5ForConditionalGeneration
        Qwen3_5MoeForConditionalGeneration SarvamMoEForCausalLM TeleFLMForCausalLM""",
    (0, 5, 13): "Gemma4UnifiedForConditionalGeneration",
    (0, 5, 16): "MellumForCausalLM MiniMaxM3SparseForCausalLM",
    (0, 5, 18): "InternS2MobiusForConditionalGeneration MiniMaxM3SparseForConditionalGeneration",
    (0, 5, 20): """
        Cosmos3ForConditionalGeneration Glm5NextForConditionalGeneration
        Qwen4ExpForConditionalGeneration""",
    (0, 5, 22): "ExaoneMoeForCausalLM Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM",
}
_DFLASH: Mapping[Number, str] = {
    _FIRST: """
        DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM Glm4MoeLiteForCausalLM
        GlmMoeDsaForCausalLM GptOssForCausalLM IQuestCoderForCausalLM InternLM3ForCausalLM
        InternS1ProForConditionalGeneration InternS2PreviewForConditionalGeneration
        KimiK25ForConditionalGeneration Llama4ForCausalLM LlamaForCausalLM Ministral3ForCausalLM
        MistralForCausalLM MistralLarge3ForCausalLM Phi3ForCausalLM Qwen3ForCausalLM Qwen3MoeForCausalLM
        Qwen3NextForCausalLM Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration
        Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration TeleFLMForCausalLM""",
    (0, 5, 14): """
        Gemma4ForCausalLM Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration""",
    (0, 5, 15): "LagunaForCausalLM",
    (0, 5, 16): "MellumForCausalLM",
    (0, 5, 17): "InklingForConditionalGeneration",
    (0, 5, 18): """
        InternS2MobiusForConditionalGeneration MuseGlimmerForCausalLM
        MuseGlimmerForConditionalGeneration Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM""",
    (0, 5, 19): """
        Lfm2BidirectionalModel Lfm2ForCausalLM Lfm2MoeForCausalLM NemotronHForCausalLM
        NemotronHPuzzleForCausalLM""",
    (0, 5, 20): """
        Cosmos3ForConditionalGeneration Glm5NextForConditionalGeneration MiMoV2FlashForCausalLM
        MiMoV2ForCausalLM NanbeigeForCausalLM NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_VL_V2
        NemotronH_Omni_Reasoning_V3 Qwen4ExpForConditionalGeneration""",
    (0, 5, 21): """
        KimiK3ForConditionalGeneration KimiK3LinearForCausalLM Lfm2VlForConditionalGeneration""",
    (0, 5, 23): """
        BeamForCausalLM MiniMaxM3SparseForConditionalGeneration MuseSparkForConditionalGeneration""",
}
_DSPARK: Mapping[Number, str] = {
    (0, 5, 16): "DeepseekV4ForCausalLM",
    (0, 5, 17): "KimiK3ForConditionalGeneration KimiLinearForCausalLM",
    (0, 5, 19): "BailingMoeV3ForCausalLM KimiK3LinearForCausalLM",
    (0, 5, 23): "MiniMaxM3SparseForConditionalGeneration",
}
_SHOWN: Mapping[str, tuple[Mapping[Number, str], ...]] = {
    "EAGLE3": (_EAGLE3,),
    "DFLASH": (_DFLASH,),
    "DSPARK": (_DSPARK, _DFLASH),
}


def shows_layers(architecture: str, algorithm: str, release: Number) -> bool:
    """Of any other algorithm a draft is shown a model's last layer alone, as every class has it."""
    tables = _SHOWN.get(algorithm)
    if tables is None:
        return True
    return any(architecture in named_until(release, table) for table in tables)


def shows_layers_alone(asked: Asked) -> bool:
    return bool(asked.others.get("enable_return_aux_hidden_states"))


def settle_shown_layers(c: Choices) -> None:
    """handle_aux_hidden_state_capture of srt/arg_groups: before anything else asks for the algorithm."""
    if shows_layers_alone(c.asked):
        c.settle("it names only how layers are shown", speculative_algorithm=None)


def drafts_asked(c: Choices) -> str | None:
    """By the algorithm as it was asked for."""
    return None if shows_layers_alone(c.asked) else c.asked.speculative_algorithm

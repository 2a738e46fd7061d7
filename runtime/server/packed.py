"""Which of SGLang's classes look for a matrix that they run as one under the names of its parts.

packed_modules_mapping of srt/models, by what serves a whole checkpoint, as the quantization has it once the
model is made. compressed-tensors knows no parts but these: others are looked for by the name of the whole.
"""

from __future__ import annotations

QKV, GATE_UP, LATENTS = "qkv_proj", "gate_up_proj", "fused_qkv_a_proj_with_mqa"
_BOTH = (
    *(
        "BeamForCausalLM",
        "Cohere2MoeForCausalLM",
        "Cohere2VisionForConditionalGeneration",
        "DeciLMForCausalLM",
    ),
    *("DiffusionGemmaForBlockDiffusion", "Ernie4_5_ForCausalLM", "Ernie4_5_MoeForCausalLM"),
    *("Exaone4ForCausalLM", "GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM"),
    *("Gemma3ForConditionalGeneration", "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"),
    *("Gemma4UnifiedForConditionalGeneration", "HunYuanDenseV1ForCausalLM", "HunYuanMoEV1ForCausalLM"),
    *("InternS2MobiusForConditionalGeneration", "InternS2PreviewForConditionalGeneration"),
    *("K2HorizonForCausalLM", "KimiK3ForConditionalGeneration", "LagunaForCausalLM", "Llama4ForCausalLM"),
    *("Llama4ForConditionalGeneration", "MellumForCausalLM", "MiniCPMV4_6ForConditionalGeneration"),
    *("MiniCPMV4_7ForConditionalGeneration", "MiniMaxM2ForCausalLM", "MiniMaxM3SparseForCausalLM"),
    *("MiniMaxM3SparseForConditionalGeneration", "MuseGlimmerForCausalLM"),
    *("MuseGlimmerForConditionalGeneration", "MuseSparkForConditionalGeneration"),
    *("PaddleOCRVLForConditionalGeneration", "Qwen3MoeForCausalLM", "Qwen3NextForCausalLM"),
    *("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForCausalLM"),
    *("Qwen3_5MoeForConditionalGeneration", "Qwen4ExpForConditionalGeneration", "SolarForCausalLM"),
)
_OF_QKV = (
    *("GraniteMoeHybridForCausalLM", "NemotronHForCausalLM", "NemotronHPuzzleForCausalLM"),
    *("NemotronH_Omni_Reasoning_V3", "PhiForCausalLM"),
)
_OF_LATENTS = (
    *("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "DeepseekVL2ForCausalLM"),
    *("DotsVLMForCausalLM", "GlmMoeDsaForCausalLM", "KimiK25ForConditionalGeneration"),
    *("KimiVLForConditionalGeneration", "MistralLarge3ForCausalLM", "PixtralForConditionalGeneration"),
)
_UNPACKS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_BOTH, (QKV, GATE_UP)),
    **dict.fromkeys(_OF_QKV, (QKV,)),
    **dict.fromkeys(
        ("BaichuanForCausalLM", "HYV4ForCausalLM", "Qwen2_5_VLForConditionalGeneration"), (GATE_UP,)
    ),
    **dict.fromkeys(_OF_LATENTS, (LATENTS,)),
    "BailingMoeV2_5ForCausalLM": (GATE_UP, LATENTS),
    "Glm5NextForConditionalGeneration": (QKV, GATE_UP, LATENTS),
}


def unpacked(architecture: str, method: str | None) -> tuple[str, ...]:
    """Of quark a loader adds two: srt/model_loader/loader.py."""
    own = _UNPACKS.get(architecture, ())
    return (*own, GATE_UP, LATENTS) if method == "quark" else own

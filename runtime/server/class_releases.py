"""Which release has a class of its own for a model: the others take transformers', where that lets them.

EntryClass of srt/models, get_model_architecture of srt/model_loader/utils.py; transformers' own are those of
the transformers that a release pins, by is_backend_compatible.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.server.asked import Asked
from runtime.server.backends import Number
from runtime.server.named_classes import named_until

_FIRST: Number = (0, 5, 12)
# Of classes whose layers are known here, those that 0.5.12 lacks.
_SINCE: Mapping[Number, str] = {
    (0, 5, 13): """
        Cohere2MoeForCausalLM Cohere2VisionForConditionalGeneration Gemma4UnifiedForConditionalGeneration
        NemotronHPuzzleForCausalLM Step3p7ForConditionalGeneration""",
    (0, 5, 14): "MiMoV2ASRForCausalLM ZayaForCausalLM",
    (0, 5, 15): "LocateAnythingForConditionalGeneration UnlimitedOCRForCausalLM",
    (0, 5, 16): """
        InklingForConditionalGeneration MellumForCausalLM MiniMaxM3SparseForCausalLM
        MiniMaxM3SparseForConditionalGeneration""",
    (0, 5, 17): """
        Gemma3TextModel KimiK3ForConditionalGeneration Qwen3Model Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM""",
    (0, 5, 18): "InternS2MobiusForConditionalGeneration MuseGlimmerForConditionalGeneration",
    (0, 5, 19): """
        BailingMoeV3ForCausalLM Dots3NoteForCausalLM GraniteMoeSWAForCausalLM GraniteMoeSharedForCausalLM
        GraniteSWAForCausalLM KimiK3LinearForCausalLM MiniCPMSALAForCausalLM Spark2_5ForCausalLM""",
    (0, 5, 20): """
        FalconMambaForCausalLM Glm5NextForConditionalGeneration HYV4ForCausalLM K2HorizonForCausalLM
        Mamba2ForCausalLM MambaForCausalLM NanbeigeForCausalLM NanbeigeForSequenceClassification
        NemotronH_Omni_Reasoning_V3
        Qwen4ExpForConditionalGeneration""",
    (0, 5, 21): """
        BailingMM2NativeForConditionalGeneration BailingMMNativeForConditionalGeneration
        BailingMoeV3VLForConditionalGeneration DiffusionGemmaForBlockDiffusion GigaChat35ForCausalLM
        IQuestQ1ForCausalLM""",
    (0, 5, 22): "ExaoneMoeForCausalLM",
    (0, 5, 23): "BeamForCausalLM MiniCPMV4_7ForConditionalGeneration MuseSparkForConditionalGeneration",
}
# transformers' classes that write text, by names that no class of SGLang's has: those that let SGLang attend,
# and those that attend by themselves, until a release pins a transformers in which they do not.
BY_SGLANG: Mapping[Number, str] = {
    _FIRST: """
        AriaText BitNet Csm Cwm Doge Dots1 Emu3 Ernie4_5 ExaoneMoe FlexOlmo Fuyu GPTNeoX Glm GraniteMoeShared
        Helium Jais2 JetMoe MiniMax Ministral Mistral4 Mllama ModernBertDecoder NanoChat Olmo3 Phi4Multimodal
        Phimoe SeedOss SmolLM3 SolarOpen VaultGemma Youtu""",
    (0, 5, 15): "Gemma4Unified HyperCLOVAX Mellum MiniMaxM3VL",
    (0, 5, 22): "AXK1 AXK2 CohereCompass DiffLlama Moshi Nemotron RecurrentGemma",
}
BY_ITSELF: Mapping[Number, str] = {
    _FIRST: """
        Bamba Bart BigBird BigBirdPegasus BioGpt Blenderbot BlenderbotSmall Bloom Blt Clvp CodeGen CpmAnt
        DiffLlama Falcon FalconMamba GPTNeo GPTNeoXJapanese Git Jamba MBart Mamba Mamba2 Marian MegatronBert
        Moshi Mpt Musicgen MusicgenMelody Mvp Nemotron OlmoHybrid PLBart Pegasus ProphetNet Qwen3_5 Qwen3_5Moe
        RecurrentGemma RemBert RoFormer Rwkv TrOCR Whisper XGLM Zamba Zamba2""",
    (0, 5, 22): "Inkling Qwen4Exp",
}
# ... and by names that a class of SGLang's has, too: of a server that is told --model-impl transformers.
TOLD_BY_SGLANG = """
    Afmoe Apertus Arcee Cohere Cohere2 DeepseekV2 DeepseekV3 Ernie4_5_Moe Gemma Gemma2 Glm4 Glm4Moe
    Glm4MoeLite GlmMoeDsa GptOss Granite GraniteMoe HYV3 Lfm2 Llama MiniMaxM2 Ministral3 Mistral Mixtral OPT
    Olmo Olmo2 Olmoe Persimmon Phi Phi3 Qwen2 Qwen2Moe Qwen3 Qwen3Moe Starcoder2"""
TOLD_BY_ITSELF = "FalconH1 GPTJ Qwen3Next StableLm"
# Of those that let it: whose plan of ranks splits a matrix as SGLang knows no way to, who has none, and whose
# layers do not pass on what SGLang attends with.
OTHER_WAYS = """
    AXK2 DeepseekV2 Doge FlexOlmo Glm Glm4 Glm4MoeLite GlmMoeDsa MiniMaxM2 Olmo2 Olmoe Phi3 Phi4Multimodal"""
ON_ONE_RANK = """
    Afmoe BitNet DiffLlama GptOss GraniteMoe GraniteMoeShared JetMoe Lfm2 ModernBertDecoder Nemotron OPT
    Persimmon Phimoe RecurrentGemma"""
PASSES_NOTHING = "Moshi Nemotron"
WRITES = "ForCausalLM"


def class_since(architecture: str) -> Number:
    return next((number for number, names in _SINCE.items() if architecture in names.split()), _FIRST)


def of_transformers(architecture: str, number: Number, asked: Asked) -> str:
    """Why a server has none of SGLang's layers; nothing where it has, as far as is known here."""
    since = class_since(architecture)
    if is_told(asked):
        return "--model-impl transformers: it runs transformers' own layers"
    if number < since:
        first = ".".join(map(str, since))
        return f"releases before {first}: they have no class of it, and run transformers' own"
    is_foreign = lets_sglang_attend(architecture, number) is not None
    return "any release: each runs transformers' own layers" if is_foreign else ""


def is_told(asked: Asked) -> bool:
    return asked.others.get("model_impl") == "transformers"


def lets_sglang_attend(architecture: str, number: Number, told: bool = False) -> bool | None:
    """Whether transformers' class lets SGLang attend; None of a class that is SGLang's, unless a server is
    `told` to run transformers', or not known here."""
    name = architecture.removesuffix(WRITES)
    if name == architecture:
        return None
    if told and name in (*TOLD_BY_SGLANG.split(), *TOLD_BY_ITSELF.split()):
        return name in TOLD_BY_SGLANG.split()
    if not told and _FIRST < class_since(architecture) <= number:
        return None
    if name in named_until(number, BY_SGLANG):
        return True
    return False if name in named_until(number, BY_ITSELF) else None

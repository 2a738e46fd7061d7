"""Servers that answer a prompt with one row and generate nothing: by their class, or by --is-embedding.

is_generation_model of srt/configs/model_config.py. Such a server tells its class's forward `get_embedding`,
which most of those that generate do not take: they end.
"""

from __future__ import annotations

from runtime.server.architectures import GRANITE_HYBRID, HYBRID
from runtime.server.asked import Asked
from runtime.server.backends import Number
from runtime.server.decoders.served_classes import CLASSES

# Classes that never generate. Of decoders, whose layers are another's:
OF_DECODERS = frozenset({
    "Gemma2ForSequenceClassification", "InternLM2ForRewardModel", "LlamaEmbeddingModel",
    "LlamaForSequenceClassification", "LlamaForSequenceClassificationWithNormal_Weights",
    "MistralModel", "Qwen2ForRewardModel", "Qwen2ForSequenceClassification",
    "Qwen3ForRewardModel", "Qwen3ForSequenceClassification", "Qwen3Model",
})  # fmt: skip
# ... by --is-embedding alone: without it, they are asked for logits.
BY_FLAG = frozenset({"LlamaForClassification", "NanbeigeForSequenceClassification"})
_OF_FILES = frozenset({"Gemma3TextModel"})  # where their file says so: embedding_gemma.py
# Of encoders, whose layers are known here:
OF_BERT = frozenset({
    "BertForSequenceClassification", "BertModel", "Contriever", "XLMRobertaForSequenceClassification",
    "XLMRobertaModel",
})  # fmt: skip
_OF_ENCODERS = OF_BERT | {
    "CLIPModel", "EmbeddingGemma2Model", "Lfm2BidirectionalModel",
}  # fmt: skip
# Of srt/models: whose forward makes one row of a prompt where it is told to embed,
POOLING = frozenset({
    "ApertusForCausalLM", "ArceeForCausalLM", "DeciLMForCausalLM", "Exaone4ForCausalLM", "Glm4ForCausalLM",
    "Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration", "GlmOcrForConditionalGeneration",
    "GraniteForCausalLM", "GraniteMoeForCausalLM", "GraniteMoeHybridForCausalLM", "GraniteMoeSWAForCausalLM",
    "GraniteMoeSharedForCausalLM", "GraniteSWAForCausalLM", "IQuestCoderForCausalLM", "InternLM3ForCausalLM",
    "InternS1ProForConditionalGeneration", "InternS2MobiusForConditionalGeneration",
    "InternS2PreviewForConditionalGeneration", "JetNemotronForCausalLM", "Llama4ForCausalLM",
    "LlamaForCausalLM", "MiMoForCausalLM", "MiMoV2ASRForCausalLM", "Ministral3ForCausalLM",
    "MistralForCausalLM",
    "NanbeigeForCausalLM", "OPTForCausalLM", "Phi3ForCausalLM", "Phi3SmallForCausalLM",
    "PhiMoEForCausalLM", "Qwen2ForCausalLM",
    "Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration", "Qwen3ForCausalLM",
    "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration", "Sarashina2VisionForCausalLM",
    "TeleFLMForCausalLM",
}) | BY_FLAG  # fmt: skip
# ... and whose takes that word for nothing, or hands it on.
_TAKING = frozenset({
    "BailingMM2NativeForConditionalGeneration", "BailingMMNativeForConditionalGeneration",
    "BailingMoeV3VLForConditionalGeneration", "Cohere2MoeForCausalLM",
    "Cohere2VisionForConditionalGeneration",
    "DeepseekOCRForCausalLM", "DeepseekVL2ForCausalLM", "DiffusionGemmaForBlockDiffusion",
    "DotsOCRForCausalLM", "Ernie4_5_VLMoeForConditionalGeneration", "FalconH1ForCausalLM",
    "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "Gemma3nForCausalLM",
    "Gemma3nForConditionalGeneration", "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration", "GlmAsrForConditionalGeneration",
    "InklingForConditionalGeneration", "KimiK25ForConditionalGeneration", "KimiK3ForConditionalGeneration",
    "KimiVLForConditionalGeneration", "Lfm2ForCausalLM", "Lfm2MoeForCausalLM",
    "Llama4ForConditionalGeneration", "LlavaForConditionalGeneration",
    "LocateAnythingForConditionalGeneration",
    "MiDashengLMModel", "MiniCPMO", "MiniMaxM3SparseForConditionalGeneration",
    "NVILAForConditionalGeneration",
    "NVILALiteForConditionalGeneration", "NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Nano_VL_V2",
    "NemotronH_Omni_Reasoning_V3", "POINTSV15ChatModel", "PaddleOCRVLForConditionalGeneration",
    "MossVLForConditionalGeneration", "MultiModalityCausalLM", "Phi4MMForCausalLM",
    "Qwen2AudioForConditionalGeneration", "Qwen3ASRForConditionalGeneration", "Qwen3NextForCausalLM",
    "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", "Qwen4ExpForConditionalGeneration",
    "Sarashina2VisionForCausalLM",
    "Step3p7ForConditionalGeneration", "StepVLForConditionalGeneration", "UnlimitedOCRForCausalLM",
    "VoxtralForConditionalGeneration", "WhisperForConditionalGeneration",
})  # fmt: skip
_TAKING_SINCE: dict[str, Number] = {"Mistral3ForConditionalGeneration": (0, 5, 23)}


def is_embedder(architecture: str) -> bool:
    """By its class, whatever is asked."""
    return architecture in OF_DECODERS or architecture in _OF_ENCODERS


def embeds(architecture: str, asked: Asked) -> bool:
    return is_embedder(architecture) or asked.is_embedding


def takes_embedding(architecture: str, release: Number) -> bool:
    """Of a class that generates; of one that nobody knows here, it may be."""
    if architecture in _OF_FILES:
        return True
    if architecture in _TAKING_SINCE:
        return release >= _TAKING_SINCE[architecture]
    return architecture in POOLING or architecture in _TAKING or architecture not in CLASSES


def is_followed(architecture: str, asked: Asked) -> bool:
    """Whether it is known what a server takes that is told to embed."""
    is_plain = asked.pp_size == 1 and not asked.enable_dp_attention and asked.speculative_algorithm is None
    pools = (
        architecture in OF_DECODERS | OF_BERT | _OF_FILES or architecture in POOLING - HYBRID - GRANITE_HYBRID
    )
    return is_plain and pools and asked.dllm_algorithm is None

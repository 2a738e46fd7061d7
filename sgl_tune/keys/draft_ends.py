"""Where a server ends at what its draft shares with its target: words that both know, tables, and layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.shown_layers import shows_layers, shows_layers_alone
from sgl_tune.keys.transformers_ends import has_transformers_layers

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_SHARING = ("EAGLE", "EAGLE3")
# Of classes whose layers are known here, those of srt/models that have no get_embed_and_head in any release
_KEEP_THEIR_TABLES = """
    AfmoeForCausalLM ArceeForCausalLM BaichuanForCausalLM BailingMM2NativeForConditionalGeneration
    BailingMMNativeForConditionalGeneration BailingMoeV3VLForConditionalGeneration BeamForCausalLM
    ChatGLMModel Cohere2ForCausalLM Cohere2MoeForCausalLM Cohere2VisionForConditionalGeneration
    CohereForCausalLM DbrxForCausalLM DeciLMForCausalLM DeepseekForCausalLM DeepseekOCRForCausalLM
    DeepseekVL2ForCausalLM DiffusionGemmaForBlockDiffusion DotsVLMForCausalLM
    Ernie4_5_VLMoeForConditionalGeneration ExaoneForCausalLM FalconMambaForCausalLM GPT2LMHeadModel
    GPTBigCodeForCausalLM GPTJForCausalLM Gemma2ForCausalLM Gemma3nForCausalLM
    Gemma3nForConditionalGeneration GemmaForCausalLM GlmAsrForConditionalGeneration GraniteForCausalLM
    GraniteMoeForCausalLM GraniteMoeHybridForCausalLM GraniteMoeSWAForCausalLM
    GraniteMoeSharedForCausalLM GraniteSWAForCausalLM Grok1ForCausalLM Grok1ModelForCausalLM
    HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM IQuestLoopCoderForCausalLM InternLM2ForCausalLM
    InternS1ForConditionalGeneration InternVLChatModel JetNemotronForCausalLM K2HorizonForCausalLM
    KimiLinearForCausalLM KimiVLForConditionalGeneration Lfm2ForCausalLM Lfm2MoeForCausalLM
    Lfm2VlForConditionalGeneration LlavaVidForCausalLM LocateAnythingForConditionalGeneration
    Mamba2ForCausalLM MambaForCausalLM MiniCPM3ForCausalLM MiniCPMForCausalLM MiniCPMSALAForCausalLM
    MixtralForCausalLM MllamaForConditionalGeneration MultiModalityCausalLM
    MuseGlimmerForConditionalGeneration NVILAForConditionalGeneration NVILALiteForConditionalGeneration
    Olmo2ForCausalLM OlmoForCausalLM OlmoeForCausalLM OrionForCausalLM POINTSV15ChatModel
    PersimmonForCausalLM Phi3SmallForCausalLM Phi4MMForCausalLM PhiForCausalLM PhiMoEForCausalLM
    QWenLMHeadModel QuantMixtralForCausalLM Qwen2AudioForConditionalGeneration Qwen2MoeForCausalLM
    Qwen2VLForConditionalGeneration Qwen3ASRForConditionalGeneration Qwen3OmniMoeForConditionalGeneration
    SDARForCausalLM SDARMoeForCausalLM Sarashina2VisionForCausalLM SarvamMLAForCausalLM SolarForCausalLM
    StableLmForCausalLM Starcoder2ForCausalLM Step3VLForConditionalGeneration
    StepVLForConditionalGeneration UnlimitedOCRForCausalLM VoxtralForConditionalGeneration
    XverseForCausalLM XverseMoeForCausalLM ZayaForCausalLM"""


def ends_of_drafts(deployment: Deployment) -> Iterator[str]:
    yield from _other_words(deployment)
    yield from _own_tables(deployment)


def ends_of_shown_layers(deployment: Deployment) -> Iterator[str]:
    """configure_aux_hidden_state_capture of srt/model_executor, of a target whose layers are known or not."""
    algorithm, release = _shown_to(deployment), deployment.server.release
    served = deployment.inputs.checkpoint.architecture
    if has_transformers_layers(deployment):
        served = "TransformersForCausalLM"
    if algorithm is not None and served and not shows_layers(served, algorithm, release.number):
        yield (
            f"--speculative-algorithm {algorithm}: SGLang {release.version}'s {served} shows nobody what its "
            "layers make of tokens"
        )


def _shown_to(deployment: Deployment) -> str | None:
    """By its algorithm; a draft of EAGLE3's may say that it looks at the last layer alone."""
    server = deployment.server
    if server.is_draft:
        return None
    if shows_layers_alone(server.asked):
        return str(server.asked.speculative_algorithm).upper()
    if server.speculative is None:
        return None
    draft, algorithm = deployment.inputs.draft_checkpoint, server.speculative.algorithm
    looks = draft is not None and draft.mapping("eagle_config").get("use_aux_hidden_state", True)
    return algorithm if looks or algorithm != "EAGLE3" else None


def _other_words(deployment: Deployment) -> Iterator[str]:
    """_validate_vocab_compatibility of srt/speculative/standalone_worker_v2.py"""
    one, server = deployment.server.speculative, deployment.server
    drawn, model = deployment.draft_shape, deployment.shape.model
    if one is None or one.algorithm != "STANDALONE" or not server.release.compares_words:
        return
    read = None if drawn is None else drawn.model
    if read is not None and model is not None and read.vocab_size != model.vocab_size:
        yield (
            f"--speculative-algorithm STANDALONE: its draft has {read.vocab_size:,} tokens, and its target "
            f"{model.vocab_size:,}"
        )


def _own_tables(deployment: Deployment) -> Iterator[str]:
    """init_lm_head of srt/speculative/eagle_worker_v2.py; a last stage asks for none of an embedding."""
    one, server = deployment.server.speculative, deployment.server
    architecture = deployment.inputs.checkpoint.architecture
    if one is None or one.algorithm not in _SHARING or server.is_draft or server.pp_size > 1:
        return
    if architecture in _KEEP_THEIR_TABLES.split():
        yield (
            f"--speculative-algorithm {one.algorithm}: SGLang's {architecture} gives no draft its embedding "
            "and its head"
        )

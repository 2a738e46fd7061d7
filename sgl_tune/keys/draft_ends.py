"""Where a server ends at what its draft shares with its target: words that both know, tables, and layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.block_draft import ends_at_layers
from runtime.server.own_draft import has_own_draft
from runtime.server.own_layer import loads_one, other_count
from runtime.server.shown_layers import shows_layers, shows_layers_alone
from sgl_tune.keys.transformers_ends import has_transformers_layers

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_SHARING = ("EAGLE", "EAGLE3")
# What a draft's steps, and its catching up, are made for: backend_map of srt/speculative/draft_utils.py
_DRAFTING_ATTENTION = (
    *("dsa", "dsv4", "fa3", "fa4", "flashinfer", "flashmla", "hybrid_linear_attn", "nsa", "triton"),
    *("trtllm_mha", "trtllm_mla"),
)
# FlashInferMLAMultiStepDraftBackend of srt/layers/attention, what is made of it, and flashmla_backend.py
_OF_ONE_BRANCH = ("flashinfer", "flashmla", "trtllm_mla", "cutedsl_mla", "tokenspeed_mla")
# That ask whether a draft knows fewer tokens: of srt/models, those that can be asked
_ASKED_FOR_TOKENS = ("LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM", "MindSporeForCausalLM")
_ANSWERING_SINCE = {"Qwen2ForCausalLMEagle": (0, 5, 16)}
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
    yield from _other_count(deployment)
    yield from _other_attention(deployment)
    yield from _other_dtype(deployment)
    yield from _without_answers(deployment)
    yield from _without_tokens(deployment)
    yield from _other_layers(deployment)


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


def _other_count(deployment: Deployment) -> Iterator[str]:
    """As its files are read."""
    one, server = deployment.server.speculative, deployment.server
    if one is None or one.algorithm != "EAGLE" or server.is_draft or server.asked.load_format == "dummy":
        return
    file = deployment.inputs.draft_checkpoint or deployment.inputs.checkpoint
    if loads_one(file.architecture) and (other := other_count(file)):
        yield f"--speculative-algorithm EAGLE: {other}, and {file.architecture}'s draft is of one layer"


def _other_attention(deployment: Deployment) -> Iterator[str]:
    """Steps attend as decodes do, but of one there are none; catching up as prefills do where not told."""
    one, server = deployment.server.speculative, deployment.server
    if one is None or one.algorithm not in (*_SHARING, "STANDALONE") or server.is_draft:
        return
    steps_by, catches_up_by = server.drafting_backends
    of_steps = [steps_by] if (one.steps or 0) > 1 else []
    known = (*_DRAFTING_ATTENTION, *server.release.more_drafting_attention)
    for backend in dict.fromkeys((*of_steps, catches_up_by)):
        if backend not in known:
            yield f"--speculative-algorithm {one.algorithm}: SGLang has no attention {backend} of a draft's"
    drawn = None if deployment.draft_shape is None else deployment.draft_shape.model
    is_tree = bool(of_steps) and (one.topk or 1) > 1
    if is_tree and drawn is not None and drawn.mla is not None and steps_by in _OF_ONE_BRANCH:
        yield f"--speculative-eagle-topk {one.topk}: SGLang's {steps_by} of latents drafts one branch"


def _other_dtype(deployment: Deployment) -> Iterator[str]:
    """Its matrices multiply what its target's embedding and layers give it: srt/models/*eagle*.py."""
    server, draft = deployment.server, deployment.server.draft
    if draft is None or server.speculative is None or server.speculative.algorithm not in _SHARING:
        return
    if has_own_draft(server) and draft.dtype != server.dtype:
        yield (
            f"its draft is in {draft.dtype}, and what its target gives it in {server.dtype}: "
            f"--dtype {server.dtype}"
        )


def _without_answers(deployment: Deployment) -> Iterator[str]:
    """Its class asks for capture_aux_hidden_states, which it has not: srt/models/qwen2_eagle.py."""
    server, draft = deployment.server, deployment.server.draft
    since = None if draft is None else _ANSWERING_SINCE.get(draft.architecture)
    if draft is not None and since is not None and server.release.number < since and has_own_draft(server):
        yield f"SGLang {server.release.version}'s {draft.architecture} ends at its first answer"


def _without_tokens(deployment: Deployment) -> Iterator[str]:
    """init_lm_head of srt/speculative/eagle_worker_v2.py asks for hot_token_id, which no other class has."""
    one, server, draft = deployment.server.speculative, deployment.server, deployment.server.draft
    asks = one is not None and one.algorithm == "EAGLE3"
    if draft is None or not asks or server.asked.others.get("enable_multi_layer_eagle"):
        return
    if draft.architecture and draft.architecture not in _ASKED_FOR_TOKENS:
        yield (
            f"--speculative-algorithm EAGLE3: its draft's {draft.architecture} is no class of EAGLE3's, as "
            "LlamaForCausalLMEagle3 and Eagle3DeepseekV2ForCausalLM are"
        )


def _other_layers(deployment: Deployment) -> Iterator[str]:
    """resolve_target_layer_ids of srt/speculative/dflash_utils.py, which the target's runner asks first, and
    _resolve_mask_token_id of its worker."""
    one, server, model = deployment.server.speculative, deployment.server, deployment.shape.model
    drawn = None if deployment.draft_shape is None else deployment.draft_shape.model
    if one is None or one.algorithm != "DFLASH" or drawn is None or drawn.fusion is None or model is None:
        return
    layers, named = model.num_layers // model.halves, server.release.block_drafts_name_layers
    yield from ends_at_layers(drawn.fusion, drawn.num_layers, layers, named)
    file = deployment.inputs.draft_checkpoint
    told = None if file is None else file.mapping("dflash_config").get("mask_token_id")
    if isinstance(told, int) and told >= model.vocab_size:
        yield f"its draft's mask_token_id is {told}, and its target has {model.vocab_size:,} tokens"

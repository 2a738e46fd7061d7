"""What one family of models does not do. srt/arg_groups/model_hook.py, model_overrides/ (before,
srt/server_args.py)."""

from __future__ import annotations

from runtime.server.architectures import DEEPSEEK_V4, ENCODED_ELSEWHERE, LFM2, MIMO_V2, MINICPM_SALA
from runtime.server.checks.row import Condition, Refusal, under
from runtime.server.choices import Choices
from runtime.server.encoders.place import encoder_place
from runtime.server.shown_layers import drafts_asked
from runtime.server.traits import (
    chooses_blocks,
    has_dp_attention,
    has_pattern,
    is_disaggregated,
    is_multimodal,
    is_sparse,
    shares_contexts,
)

_HYV4 = ("HYV4ForCausalLM", "HYV4ForCausalLMNextN")
_TEXT_ALONE = (
    "DeepseekV4ForCausalLM", "MuseGlimmerForConditionalGeneration", "Cosmos3ForConditionalGeneration",
    "Cosmos3EdgeForConditionalGeneration",
)  # fmt: skip
_AS_MANY = "as many of one as of the other"
_CONTEXT_DECODED = (*sorted(DEEPSEEK_V4), "GlmMoeDsaForCausalLM", "GlmMoeDsaForCausalLMNextN")


def _of(*names: str) -> Condition:
    return lambda c: c.model.architecture in names


def _fused_ranks(c: Choices) -> int | None:
    """How many ranks MiMo-V2's fused projections are interleaved for."""
    if c.model.get("attention_projection_layout") != "fused_qkv":
        return None
    return c.model.whole("num_key_value_heads", 1, low=1)


def _attention_ranks(c: Choices) -> int:
    return max(1, int(c.tp_size // max(1, c.attn_dp_size) // max(1, c.attn_cp_size)))


# srt/layers/dp_attention.py: reject_attn_tp_shard_with_tp_reduce. The encoders of GLM, Qwen3-VL and Kimi-K2.5
# are summed over attention's ranks, as they are split.
_SUMS_OVER_ALL = (
    "DotsOCRForCausalLM", "DotsVLMForCausalLM", "Gemma3ForConditionalGeneration",
    "InternS1ForConditionalGeneration", "InternVLChatModel",
    "KimiVLForConditionalGeneration", "Lfm2VlForConditionalGeneration",
    "LightOnOCRForConditionalGeneration", "Llama4ForConditionalGeneration", "LlavaForConditionalGeneration",
    "MiMoV2ForCausalLM", "MiniCPMO", "MiniCPMV", "MiniCPMV4_6ForConditionalGeneration",
    "MiniCPMV4_7ForConditionalGeneration", "Mistral3ForConditionalGeneration",
    "MossVLForConditionalGeneration", "MuseGlimmerForConditionalGeneration",
    "NemotronH_Nano_Omni_Reasoning_V3",
    "NemotronH_Nano_VL_V2", "NemotronH_Omni_Reasoning_V3", "PaddleOCRVLForConditionalGeneration",
    "PixtralForConditionalGeneration", "POINTSV15ChatModel",
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration", "Qwen3ASRForConditionalGeneration",
    "Qwen3OmniMoeForConditionalGeneration",
    "Step3VLForConditionalGeneration", "StepVLForConditionalGeneration",
)  # fmt: skip


# Of those, whose encoder each rank may have whole.
_WHOLE_WHERE_ASKED = (
    "InternVLChatModel", "KimiVLForConditionalGeneration", "MiMoV2ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration",
)  # fmt: skip
_SECTIONS = ("vision_config", "audio_config")


def _splits_otherwise_than_it_sums(c: Choices) -> bool:
    """An encoder over attention's ranks that adds up those of all. One that runs elsewhere is let be, and
    MiMo-V2.5 may have none."""
    if c.model.architecture == "MiMoV2ForCausalLM" and not all(map(c.model.has, _SECTIONS)):
        return False
    place = encoder_place(c)
    is_split = place == "split" or (place == "whole" and not _may_be_whole(c))
    runs_here = is_split and c.disaggregation_mode != "decode" and not c.language_only
    return runs_here and 1 < _attention_ranks(c) < c.tp_size and c.model.architecture in _SUMS_OVER_ALL


def _may_be_whole(c: Choices) -> bool:
    return c.model.architecture in _WHOLE_WHERE_ASKED


_IQUEST = (
    Refusal(
        lambda c: (drafts_asked(c) or "EAGLE").upper() not in ("EAGLE", "NEXTN"),
        "IQuest Q1 does not go with [speculative_algorithm]",
    ),
    Refusal(
        lambda c: (
            c.speculative_algorithm is not None
            and c.asked.speculative_draft_attention_backend not in (None, "fa3")
        ),
        "IQuest Q1 does not go with [speculative_draft_attention_backend]",
    ),
    Refusal(shares_contexts, "IQuest Q1 does not go with context parallelism"),
    Refusal(lambda c: (c.asked.speculative_eagle_topk or 1) > 1, "IQuest Q1 with [speculative_eagle_topk]"),
    Refusal(lambda c: c.enable_multi_layer_eagle, "IQuest Q1 with [enable_multi_layer_eagle]"),
    Refusal(has_dp_attention, "IQuest Q1 does not go with DP attention"),
    Refusal(lambda c: c.pp_size > 1, "IQuest Q1 does not go with [pp_size]"),
    Refusal(
        lambda c: (
            c.speculative_algorithm is not None and c.speculative_draft_model_path in (None, c.model_path)
        ),
        "IQuest Q1 needs a draft of its own: --speculative-draft-model-path",
    ),
)
_MIMO_V2 = (
    Refusal(
        lambda c: c.enable_prefill_cp and c.cp_strategy != "zigzag",
        "MiMo-V2 does not go with [cp_strategy]",
        "--cp-strategy zigzag",
        since=(0, 5, 20),
    ),
    Refusal(
        lambda c: c.enable_prefill_cp and is_multimodal(c) and not (c.language_only or c.language_model_only),
        "MiMo-V2 under [enable_prefill_cp] reads text alone",
        "--language-only",
        since=(0, 5, 20),
    ),
    Refusal(
        lambda c: (
            c.model.architecture == "MiMoV2ForCausalLM"
            and not c.encoder_only
            and _fused_ranks(c) is not None
            and (_fused_ranks(c) or 1) % _attention_ranks(c)
        ),
        "MiMo-V2's projections are not for [tp_size] over so many attention-DP groups",
        since=(0, 5, 17),
    ),
    Refusal(
        lambda c: (
            c.model.architecture == "MiMoV2ForCausalLM" and _fused_ranks(c) not in (None, _attention_ranks(c))
        ),
        "MiMo-V2's projections are not for [tp_size] over so many attention-DP groups",
        until=(0, 5, 17),
    ),
)
_SPARSE_CONTEXT = (
    Refusal(lambda c: c.enable_hisparse or c.enable_hierarchical_cache,
            "[dcp_size] of sparse attention goes without --enable-hisparse and --enable-hierarchical-cache"),
    Refusal(is_disaggregated, "[dcp_size] of sparse attention does not go with [disaggregation_mode]"),
    Refusal(lambda c: c.asked.speculative_eagle_topk not in (None, 1),
            "[dcp_size] of sparse attention does not go with [speculative_eagle_topk]"),
)  # fmt: skip
_QWEN4 = (
    Refusal(lambda c: c.enable_unified_memory, "Qwen4-Exp does not go with [enable_unified_memory]"),
    Refusal(
        lambda c: c.qsa_indexer_dtype == "fp8_e4m3" and c.gpu.major not in (9, 10),
        "[qsa_indexer_dtype] needs sm90 or sm100",
    ),
)


def _attends_to_blocks(c: Choices) -> bool:
    backends = c.attention_backend, c.prefill_attention_backend, c.decode_attention_backend
    return chooses_blocks(c) and any(str(one).startswith("minicpm_") for one in backends)


ROWS = (
    Refusal(
        lambda c: is_disaggregated(c) and _attends_to_blocks(c),
        "MiniCPM-SALA's blocks do not go with [disaggregation_mode]",
        "--attention-backend fa3",
    ),
    Refusal(
        lambda c: c.model.architecture in (MINICPM_SALA, "MiniCPMForCausalLM") and has_dp_attention(c),
        "MiniCPM does not go with DP attention",
        since=(0, 5, 19),
    ),
    *under(_of("IQuestQ1ForCausalLM"), _IQUEST, since=(0, 5, 21)),
    *under(_of(*MIMO_V2), _MIMO_V2),
    *under(lambda c: is_sparse(c) and c.dcp_size > 1, _SPARSE_CONTEXT, since=(0, 5, 22)),
    *under(_of("Qwen4ExpForConditionalGeneration"), _QWEN4),
    *under(
        _of("InternS2MobiusForConditionalGeneration"),
        (
            Refusal(lambda c: c.pp_size != 1, "Intern-S2-Mobius does not go with [pp_size]"),
            Refusal(lambda c: c.asked.ep_size != 1, "Intern-S2-Mobius does not go with [ep_size]"),
        ),
        since=(0, 5, 18),
    ),
    Refusal(
        lambda c: c.model.model_type in ("nemotron_h", "nemotron_h_puzzle") and c.attn_cp_size > 1,
        "NemotronH does not go with [attn_cp_size]",
        since=(0, 5, 21),
    ),
    Refusal(
        lambda c: c.model.model_type == "longcat_flash" and c.enable_prefill_cp and c.attn_cp_size > 1,
        "LongCat does not go with [enable_prefill_cp] and [attn_cp_size]",
        since=(0, 5, 21),
    ),
    Refusal(
        lambda c: c.model.architecture in _HYV4 and (c.enable_prefill_cp or c.dcp_size > 1),
        "HYV4 does not go with context parallelism",
        since=(0, 5, 20),
    ),
    Refusal(
        lambda c: (
            c.model.architecture == "DeepseekV32ForCausalLM"
            and c.enable_prefill_cp
            and c.cp_strategy == "zigzag"
        ),
        "DeepSeek-V3.2 does not go with [cp_strategy]",
        "--cp-strategy interleave",
        since=(0, 5, 20),
    ),
    Refusal(
        lambda c: c.model.architecture == "Ernie4_5_VLMoeForConditionalGeneration" and has_dp_attention(c),
        "ERNIE 4.5 VL does not go with DP attention",
        since=(0, 5, 22),
    ),
    Refusal(
        lambda c: c.model.architecture in LFM2 and c.attention_backend == "triton",
        "LFM2 does not run on [attention_backend]",
    ),
    Refusal(
        lambda c: c.model.architecture == "Olmo2ForCausalLM" and c.attention_backend == "flashinfer",
        "OLMo does not run on [attention_backend]",
    ),
    Refusal(
        lambda c: (
            c.model.architecture.startswith("Exaone")
            and has_pattern(c)
            and c.attention_backend not in ("fa3", "triton", "trtllm_mha")
        ),
        "EXAONE does not run on [attention_backend]",
        "fa3, triton or trtllm_mha",
    ),
    Refusal(
        lambda c: c.language_model_only and c.model.architecture not in _TEXT_ALONE,
        "[language_model_only] does not run this model",
    ),
    Refusal(
        _splits_otherwise_than_it_sums,
        "this model's encoder needs one rank for attention, or all: [tp_size] with [dp_size]",
        lambda c: f"{_AS_MANY}, or --mm-enable-dp-encoder" if _may_be_whole(c) else _AS_MANY,
        since=(0, 5, 22),
    ),
    Refusal(
        lambda c: c.encoder_only and c.model.architecture not in ENCODED_ELSEWHERE,
        "[encoder_only]: this model has no encoder that runs elsewhere",
    ),
    Refusal(
        lambda c: c.enable_cp_decode_attn_tp and c.model.architecture not in _CONTEXT_DECODED,
        "[enable_cp_decode_attn_tp] does not run this model",
    ),
    Refusal(
        lambda c: c.enable_encoder_swa_bounded_replay and c.model.model_type != "deepseek_v41",
        "[enable_encoder_swa_bounded_replay] is for DeepSeek-V4.1",
    ),
    Refusal(
        lambda c: (
            c.model.has("dual_chunk_attention_config")
            and c.asked.attention_backend not in (None, "dual_chunk_flash_attn")
        ),
        "[attention_backend] does not run a model with dual chunks",
        "--attention-backend dual_chunk_flash_attn",
        until=(0, 5, 20),
    ),
)

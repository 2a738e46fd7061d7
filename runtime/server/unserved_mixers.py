"""... of families most of whose layers have states, or one thing each."""

from __future__ import annotations

from runtime.server.unserved_row import DRAFTS, PLAIN_ALONE, QUANTIZED_FILES, UNSHARED, Row, in_bfloat16
from runtime.server.unserved_when import by_logits, moves_experts, other_widths

_ALONE = (
    Row(lambda _, s: s.attn_dp_size > 1, "DP attention: its layers and its states are split over all ranks"),
    Row(
        lambda _, s: s.states.extra_buffer,
        "states in an extra buffer: which of its own it keeps for prefixes is not known here",
    ),
    Row(
        lambda _, s: s.asked.disaggregation_mode != "null",
        "prefills and decodes apart: what is sent of states alone is not known here",
    ),
    Row(
        lambda _, s: bool(s.asked.others.get("enable_unified_memory") or s.asked.enable_hierarchical_cache),
        "--enable-unified-memory or --enable-hierarchical-cache: what they make of states alone is unknown",
    ),
    QUANTIZED_FILES,
    DRAFTS,
)

MIXERS = {
    # srt/models/mamba.py, mamba2.py and falcon_mamba.py
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba"), _ALONE),
    # srt/models/jet_nemotron.py, whose states are told to one backend and read by a kernel of Triton's
    "jet_nemotron": (
        Row(
            lambda _, s: bool(
                {s.asked.linear_attn_backend, s.asked.linear_attn_decode_backend} - {None, "triton"}
            ),
            "a --linear-attn-backend but triton: what others make for it is not known here",
        ),
        PLAIN_ALONE,
        DRAFTS,
    ),
    # srt/models/minicpm.py, srt/layers/attention/minicpm, srt/layers/attention/linear's seg_la
    "minicpm_sala": (
        Row(
            lambda _, s: "minicpm_" in f"{s.prefill_attention_backend} {s.decode_attention_backend}",
            "attention on minicpm_flashattn and minicpm_flashinfer: what they keep of blocks is not known "
            "here; --attention-backend fa3, as any other, sees all tokens",
        ),
        Row(other_widths, "heads of other widths than 128: its kernel of a decode has no part for them"),
        DRAFTS,
    ),
    # srt/models/zaya.py, whose experts are chosen before any kernel, and whose layers share out no rows
    "zaya": (
        Row(lambda _, s: s.pp_size > 1, "--pp: a stage's first router is not told what the one before made"),
        Row(lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: its layers share out no rows"),
        Row(moves_experts, "experts that move: its class names none"),
        Row(by_logits, "a MoE backend but triton and flashinfer_cutlass: its router has no logits for it"),
        PLAIN_ALONE,
        DRAFTS,
    ),
    # srt/models/nemotron_h.py, srt/configs/nemotron_h.py
    "nemotron_h_puzzle": (
        Row(
            lambda _, s: s.moe_a2a_backend != "none",
            "an all-to-all: what it takes beside experts of several sizes is not known here",
        ),
        Row(moves_experts, "experts that move: which rank then has them is not known here"),
        DRAFTS,
    ),
    # srt/models/inkling.py, inkling_common: what is not bf16 is read by rules of its own, and experts in bf16
    # are its own kernels' but on TRT-LLM's
    "inkling_model": (
        in_bfloat16("its states have no other"),
        Row(
            lambda m, s: s.weights_quantization is not None and m.quantized.experts is None,
            "quantized weights but those of a checkpoint: what its class makes of others is not known here",
        ),
        Row(
            lambda m, s: m.quantized.experts is not None and (s.gpu.major != 10 or not s.backend.routed),
            "experts in nvfp4 but on flashinfer_trtllm_routed: what others keep of them is not known here",
        ),
        Row(
            lambda _, s: bool(s.asked.enable_multimodal),
            "--enable-multimodal: how large what it sees and hears with is, is not known here",
        ),
        Row(lambda _, s: s.attn_dp_size > 1, "DP attention: its dense layers are split over other ranks"),
        Row(
            lambda _, s: bool(s.asked.others.get("enable_scattered_sconv")),
            "--enable-scattered-sconv: which channels a rank then convolves is not known here",
        ),
        UNSHARED,
        Row(moves_experts, "experts that move: its class names none"),
        Row(
            lambda _, s: s.moe_runner_backend not in ("auto", "triton", "flashinfer_trtllm_routed"),
            "a MoE backend but triton and flashinfer_trtllm_routed: its experts run on neither of the two",
        ),
        Row(
            lambda _, s: bool(s.asked.others.get("enable_unified_memory")),
            "--enable-unified-memory: how its three pools share what is there is not known here",
        ),
        Row(
            lambda _, s: s.asked.enable_lora or bool(s.asked.lora_paths),
            "adapters: experts then lie otherwise",
        ),
        DRAFTS,
    ),
}

"""How ranks are laid out. srt/arg_groups/parallel_hook.py, validation_hook.py (before, server_args.py)."""

from __future__ import annotations

from runtime.server.checks.row import Refusal, apart, at_least, needs, under
from runtime.server.choices import Choices
from runtime.server.shown_layers import drafts_asked
from runtime.server.traits import has_dp_attention, is_disaggregated, replicas


def _attention_tp(c: Choices) -> int:
    return int(c.tp_size // max(1, c.attn_dp_size) // max(1, c.attn_cp_size))


_CONTEXT = (
    Refusal(lambda c: c.tp_size % c.attn_cp_size, "[attn_cp_size] does not divide [tp_size]"),
    Refusal(
        lambda c: c.tp_size % (c.dp_size * c.attn_cp_size),
        "[attn_cp_size] times [dp_size] does not divide [tp_size]",
        until=(0, 5, 22),
    ),
    Refusal(
        lambda c: c.tp_size % (c.attn_dp_size * c.attn_cp_size),
        "[attn_cp_size] times [attn_dp_size] does not divide [tp_size]",
    ),
    Refusal(lambda c: c.enable_aiter_allreduce_fusion, "[attn_cp_size] with [enable_aiter_allreduce_fusion]"),
)
_EXPERT_GROUPS = (
    Refusal(lambda c: c.tp_size % c.moe_dp_size, "[moe_dp_size] does not divide [tp_size]"),
    Refusal(
        lambda c: c.asked.ep_size * c.moe_dp_size > c.tp_size,
        "[moe_dp_size] groups of [ep_size] are more ranks than [tp_size]",
    ),
    Refusal(lambda c: c.pp_size != 1, "[moe_dp_size] does not go with [pp_size]"),
    Refusal(
        lambda c: c.asked.ep_size > 1 and c.asked.ep_size * c.moe_dp_size != c.tp_size,
        "[moe_dp_size] groups of [ep_size] are not all ranks of [tp_size]",
    ),
    Refusal(lambda c: c.enable_aiter_allreduce_fusion, "[moe_dp_size] with [enable_aiter_allreduce_fusion]"),
)
_DECODE_CONTEXT = (
    Refusal(
        lambda c: c.dcp_size > 1 and c.speculative_algorithm is not None,
        "[dcp_size] does not go with [speculative_algorithm]",
        until=(0, 5, 17),
    ),
    Refusal(
        lambda c: c.dcp_size > 1 and c.enable_prefill_cp,
        "[dcp_size] does not go with [enable_prefill_cp]",
        since=(0, 5, 22),
    ),
    Refusal(
        lambda c: c.dcp_comm_backend in ("a2a", "fi_a2a") and c.dcp_size <= 1,
        "[dcp_comm_backend] needs --dcp-size above 1",
    ),
    Refusal(
        lambda c: c.dcp_replicate_q_proj and c.dcp_size <= 1,
        "[dcp_replicate_q_proj] needs --dcp-size above 1",
    ),
    Refusal(
        lambda c: c.dcp_replicate_q_proj and c.dcp_comm_backend == "ag_rs",
        "[dcp_replicate_q_proj] does not go with [dcp_comm_backend]",
        "--dcp-comm-backend a2a",
    ),
)
_PIPELINE = (
    Refusal(
        lambda c: c.speculative_algorithm is not None,
        "[pp_size] does not go with [speculative_algorithm]",
        "leave one of the two out",
        until=(0, 5, 21),
    ),
    Refusal(
        lambda c: (
            c.speculative_algorithm not in (None, "EAGLE", "DSPARK")
            or (c.speculative_algorithm == "EAGLE" and c.enable_multi_layer_eagle)
        ),
        "[pp_size] does not go with [speculative_algorithm]: only EAGLE of one layer is pipelined",
    ),
    Refusal(
        lambda c: c.speculative_algorithm is not None and c.disaggregation_mode != "prefill",
        "[pp_size] with [speculative_algorithm] only runs on a server that prefills",
        "--disaggregation-mode prefill, or leave one of the two out",
    ),
    Refusal(
        lambda c: c.min_free_slots_delay is not None,
        "[pp_size] does not go with [min_free_slots_delay]",
        since=(0, 5, 18),
    ),
)
_DWDP = (
    Refusal(lambda c: c.dwdp_size != c.tp_size, "[dwdp_size] must be that of [tp_size]"),
    Refusal(
        lambda c: c.disaggregation_mode == "decode", "[dwdp_size] does not go with [disaggregation_mode]"
    ),
    Refusal(lambda c: c.enable_eplb, "[dwdp_size] does not go with [enable_eplb]"),
    Refusal(lambda c: drafts_asked(c), "[dwdp_size] does not go with [speculative_algorithm]"),
    Refusal(lambda c: c.pp_size != 1, "[dwdp_size] does not go with [pp_size]"),
    Refusal(lambda c: c.enable_two_batch_overlap, "[dwdp_size] with [enable_two_batch_overlap]"),
)
_HEAD = (
    Refusal(
        lambda c: c.enable_tp_lm_head_all_to_all and not has_dp_attention(c),
        "[enable_tp_lm_head_all_to_all] needs DP attention",
    ),
    Refusal(
        lambda c: c.enable_tp_lm_head_all_to_all and (c.enable_dp_lm_head and c.attn_dp_size > 1),
        "[enable_tp_lm_head_all_to_all] does not go with [enable_dp_lm_head]",
    ),
    Refusal(
        lambda c: c.enable_tp_lm_head_all_to_all and c.tp_size != c.attn_dp_size,
        "[enable_tp_lm_head_all_to_all] needs as many attention-DP groups as [tp_size]",
    ),
)

ROWS = (
    *under(lambda c: c.attn_cp_size > 1, _CONTEXT),
    *under(lambda c: c.moe_dp_size > 1, _EXPERT_GROUPS),
    Refusal(
        lambda c: c.attn_cp_size != c.moe_dp_size and c.moe_dp_size != 1,
        "[moe_dp_size] must be 1, or that of [attn_cp_size]",
    ),
    needs("enable_prefill_cp", "cp_strategy"),
    apart("enable_prefill_context_parallel", "enable_nsa_prefill_context_parallel"),
    apart("enable_prefill_context_parallel", "enable_dsa_prefill_context_parallel"),
    *_DECODE_CONTEXT,
    *under(lambda c: c.pp_size > 1, _PIPELINE),
    *under(lambda c: (c.dwdp_size or 1) > 1, _DWDP),
    *_HEAD,
    Refusal(
        lambda c: replicas(c) > 1 and c.nnodes != 1,
        "[dp_size] replicas do not run on [nnodes]",
        "data parallelism over nodes is DP attention: --enable-dp-attention",
    ),
    Refusal(
        lambda c: c.moe_dense_tp_size not in (None, 1),
        "[moe_dense_tp_size]: only 1 is possible",
        until=(0, 5, 13),
    ),
    Refusal(
        lambda c: c.moe_dense_tp_size not in (None, 1, c.tp_size),
        "[moe_dense_tp_size]: only 1 or that of [tp_size] is possible",
    ),
    at_least(1, "pp_max_micro_batch_size"),
    at_least(0, "base_gpu_id"),
    at_least(1, "gpu_id_step"),
    Refusal(
        lambda c: (
            c.shared_experts_tp_size is not None
            and (c.shared_experts_tp_size < 1 or _attention_tp(c) % c.shared_experts_tp_size)
        ),
        "[shared_experts_tp_size] does not divide the ranks of attention",
    ),
    Refusal(
        lambda c: (
            c.shared_experts_tp_size is not None and c.model.architecture != "KimiK3ForConditionalGeneration"
        ),
        "[shared_experts_tp_size] is for Kimi-K3 only",
    ),
    Refusal(
        lambda c: (
            c.shared_experts_tp_size is not None
            and c.moe_a2a_backend not in ("deepep", "megamoe", "mooncake", "ascend_fuseep", "mori")
        ),
        "[shared_experts_tp_size] does not go with [moe_a2a_backend]",
    ),
    Refusal(
        lambda c: c.enable_quant_communications and c.tp_size == 1,
        "[enable_quant_communications] needs more than one rank",
    ),
    Refusal(lambda c: c.enable_quant_communications, "[enable_quant_communications] is for NPUs only"),
    Refusal(lambda c: c.enable_pdmux and c.pp_size != 1, "[enable_pdmux] does not go with [pp_size]"),
    Refusal(
        lambda c: c.enable_pdmux and c.chunked_prefill_size != -1,
        "[enable_pdmux] does not go with [chunked_prefill_size]",
        "--chunked-prefill-size -1",
    ),
    Refusal(
        lambda c: c.enable_pdmux and is_disaggregated(c),
        "[enable_pdmux] does not go with [disaggregation_mode]",
    ),
    needs("enable_pdmux", "disable_overlap_schedule"),
)

"""Prefill and decode apart, and encoders apart. srt/arg_groups/pd_disaggregation_hook.py, model_hook.py."""

from __future__ import annotations

from runtime.server.checks.row import Refusal, apart, needs, under
from runtime.server.choices import Choices
from runtime.server.traits import is_disaggregated

_MOVES_DECODE_CONTEXT = ("mooncake", "mooncake_tcp", "nixl")
_TEXT_ALONE_BARS = (
    *("encoder_only", "language_only", "enable_prefix_mm_cache"),
    *("enable_broadcast_mm_inputs_process", "mm_enable_dp_encoder"),
)
_SWITCHED = (
    Refusal(lambda c: c.asked.ep_size > 1, "[enable_pd_role_switch] does not go with [ep_size]"),
    Refusal(
        lambda c: c.moe_a2a_backend != "none", "[enable_pd_role_switch] does not go with [moe_a2a_backend]"
    ),
    Refusal(lambda c: c.pp_size > 1, "[enable_pd_role_switch] does not go with [pp_size]"),
    Refusal(
        lambda c: c.attn_dp_size > 1 and c.enable_dp_attention_local_control_broadcast,
        "[enable_pd_role_switch] does not go with [enable_dp_attention_local_control_broadcast]",
    ),
    Refusal(lambda c: c.dcp_size > 1, "[enable_pd_role_switch] does not go with [dcp_size]"),
    Refusal(
        lambda c: c.speculative_algorithm is not None,
        "[enable_pd_role_switch] does not go with [speculative_algorithm]",
    ),
)
_SHARED_PREFIXES = (
    apart("disaggregation_decode_enable_radix_cache", "enable_hisparse"),
    Refusal(
        lambda c: c.disaggregation_transfer_backend == "fake",
        "[disaggregation_decode_enable_radix_cache] with [disaggregation_transfer_backend]",
        since=(0, 5, 14),
    ),
    Refusal(
        lambda c: c.disaggregation_transfer_backend not in _MOVES_DECODE_CONTEXT,
        "[disaggregation_decode_enable_radix_cache] with [disaggregation_transfer_backend]",
        until=(0, 5, 14),
    ),
)
_DECODE_CONTEXT = (
    Refusal(
        lambda c: c.disaggregation_transfer_backend not in _MOVES_DECODE_CONTEXT,
        "[dcp_size] does not go with [disaggregation_transfer_backend]",
        until=(0, 5, 19),
    ),
    Refusal(
        lambda c: c.disaggregation_transfer_backend not in (*_MOVES_DECODE_CONTEXT, "fake"),
        "[dcp_size] does not go with [disaggregation_transfer_backend]",
        until=(0, 5, 22),
    ),
    Refusal(
        lambda c: c.disaggregation_decode_enable_radix_cache,
        "[dcp_size] does not go with [disaggregation_decode_enable_radix_cache]",
        until=(0, 5, 21),
    ),
    Refusal(
        lambda c: c.enable_hierarchical_cache,
        "[dcp_size] does not go with [enable_hierarchical_cache]",
        until=(0, 5, 21),
    ),
)


def _leaves_attention_whole(c: Choices) -> bool:
    groups = c.dp_size if c.enable_dp_attention else 1
    return bool(c.tp_size == groups)


def _tiered_otherwise(c: Choices) -> bool:
    if c.disaggregation_mode == "decode":
        return bool(c.asked.disaggregation_decode_enable_radix_cache or c.enable_hierarchical_cache)
    stored = c.hicache_storage_backend is not None or c.hicache_write_policy != "write_back"
    return bool(c.enable_hierarchical_cache and stored)


_WHOLE_PREFILLS = (
    Refusal(lambda c: not is_disaggregated(c), "[disaggregation_decode_allocation_policy] needs two roles"),
    Refusal(
        lambda c: c.disaggregation_transfer_backend not in ("mooncake", "mooncake_tcp"),
        "[disaggregation_decode_allocation_policy] with [disaggregation_transfer_backend]",
    ),
    Refusal(
        lambda c: c.pp_size != 1 or c.attn_cp_size != 1 or c.dcp_size != 1 or not _leaves_attention_whole(c),
        "[disaggregation_decode_allocation_policy] wants attention whole on every rank",
    ),
    Refusal(
        lambda c: c.enable_pdmux or c.decoupled_spec_role != "null" or c.enable_pd_role_switch,
        "[disaggregation_decode_allocation_policy] with roles that change",
    ),
    Refusal(
        lambda c: c.encoder_only or c.language_only or c.enable_hisparse or _tiered_otherwise(c)
        or c.disaggregation_decode_host_receive_threshold < 1,
        "[disaggregation_decode_allocation_policy] does not go with what else was asked",
    ),
)  # fmt: skip

ROWS = (
    *under(lambda c: c.disaggregation_mode == "decode" and c.dcp_size > 1, _DECODE_CONTEXT, since=(0, 5, 17)),
    *under(
        lambda c: c.disaggregation_mode == "decode" and c.disaggregation_decode_enable_radix_cache,
        _SHARED_PREFIXES,
    ),
    Refusal(
        lambda c: c.disaggregation_mode == "prefill" and c.disaggregation_transfer_backend == "fake",
        "[disaggregation_transfer_backend] is for a server that decodes",
    ),
    *under(lambda c: is_disaggregated(c) and c.enable_pd_role_switch, _SWITCHED),
    *under(lambda c: c.disaggregation_decode_allocation_policy == "prefill_complete", _WHOLE_PREFILLS),
    *under(
        lambda c: c.language_model_only,
        tuple(apart("language_model_only", other) for other in _TEXT_ALONE_BARS),
    ),
    Refusal(
        lambda c: c.language_model_only and is_disaggregated(c),
        "[language_model_only] does not go with [disaggregation_mode]",
    ),
    needs("enable_prefix_mm_cache", "encoder_only"),
    apart("encoder_only", "language_only"),
    Refusal(
        lambda c: c.encoder_only and is_disaggregated(c),
        "[encoder_only] does not go with [disaggregation_mode]",
    ),
)

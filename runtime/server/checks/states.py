"""Recurrent states. srt/arg_groups/mamba_hook.py, handle_linear_attn_backend of attention_hook.py
(before, in srt/server_args.py)."""

from __future__ import annotations

from runtime.server.checks.row import Refusal, apart, at_least, under
from runtime.server.choices import Choices
from runtime.server.state_cache import keeps_states_now
from runtime.server.traits import is_disaggregated


def _decode(c: Choices) -> str:
    """FlashKDA only prefills."""
    named = str(c.linear_attn_decode_backend or c.linear_attn_backend)
    return "triton" if named == "flashkda" else named


def _verify(c: Choices) -> str | None:
    named: str | None = c.linear_attn_verify_backend
    return "flashinfer" if named is None and _decode(c) == "flashinfer" else named


_ROUNDING = (
    Refusal(
        lambda c: c.mamba_ssm_dtype != "float16",
        "[enable_mamba_cache_stochastic_rounding] needs --mamba-ssm-dtype float16",
    ),
    Refusal(
        lambda c: c.mamba_backend == "triton" and c.gpu.major != 10,
        "[enable_mamba_cache_stochastic_rounding] on [mamba_backend] needs sm100",
        "--mamba-backend flashinfer",
    ),
)
_INT8 = (
    apart("enable_int8_mamba_checkpoint", "enable_hierarchical_cache"),
    Refusal(
        lambda c: c.radix_cache_backend is not None,
        "[enable_int8_mamba_checkpoint] does not go with [radix_cache_backend]",
    ),
    apart("enable_int8_mamba_checkpoint", "enable_lmcache", since=(0, 5, 21)),
)
_REPLAY = (
    Refusal(
        lambda c: _decode(c) != "triton",
        "[enable_linear_replayssm] needs linear attention to decode on triton",
        until=(0, 5, 18),
    ),
    Refusal(
        lambda c: _decode(c) not in ("triton", "helion"),
        "[enable_linear_replayssm] needs linear attention to decode on triton or helion",
    ),
    Refusal(keeps_states_now, "[enable_linear_replayssm] needs --mamba-radix-cache-strategy no_buffer"),
    Refusal(is_disaggregated, "[enable_linear_replayssm] does not go with [disaggregation_mode]"),
    at_least(1, "linear_replayssm_cache_len"),
)
_SPECULATIVE_REPLAY = (
    Refusal(
        lambda c: c.asked.speculative_eagle_topk not in (None, 1),
        "[enable_linear_replayssm_spec] does not go with [speculative_eagle_topk]",
    ),
    Refusal(
        lambda c: _decode(c) not in ("triton", "flashinfer"),
        "[enable_linear_replayssm_spec] needs linear attention to decode on triton or flashinfer",
    ),
    Refusal(
        lambda c: c.disaggregation_mode == "prefill",
        "[enable_linear_replayssm_spec] does not go with [disaggregation_mode]",
    ),
    apart("enable_linear_replayssm_spec", "enable_linear_replayssm"),
)
_DELTA_REPLAY = (
    Refusal(
        lambda c: c.asked.speculative_eagle_topk not in (None, 1),
        "[enable_gdn_replayssm_spec] does not go with [speculative_eagle_topk]",
    ),
    Refusal(lambda c: _decode(c) != "triton", "[enable_gdn_replayssm_spec] needs triton to decode"),
    Refusal(keeps_states_now, "[enable_gdn_replayssm_spec] needs states that are not kept"),
    Refusal(is_disaggregated, "[enable_gdn_replayssm_spec] does not go with [disaggregation_mode]"),
    apart("enable_gdn_replayssm_spec", "enable_linear_replayssm"),
    at_least(1, "linear_replayssm_cache_len"),
    Refusal(
        lambda c: c.linear_replayssm_cache_len & (c.linear_replayssm_cache_len - 1),
        "[linear_replayssm_cache_len]: a power of two is possible",
    ),
    Refusal(
        lambda c: c.mamba_ssm_dtype not in (None, "float32"),
        "[enable_gdn_replayssm_spec] does not go with [mamba_ssm_dtype]",
    ),
)

ROWS = (
    at_least(0, "mamba_cache_philox_rounds"),
    Refusal(
        lambda c: c.mamba_max_states_per_path == 0 or c.mamba_max_states_per_path < -1,
        "[mamba_max_states_per_path]: -1 or a number above 0 is possible",
    ),
    *under(lambda c: c.enable_mamba_cache_stochastic_rounding, _ROUNDING),
    *under(lambda c: c.enable_int8_mamba_checkpoint, _INT8),
    Refusal(
        lambda c: c.linear_attn_decode_backend == "flashkda",
        "[linear_attn_decode_backend] only prefills",
        "--linear-attn-prefill-backend flashkda",
    ),
    Refusal(
        lambda c: _verify(c) == "flashinfer" and c.mamba_ssm_dtype != "bfloat16" and c.gpu.major >= 10,
        "[linear_attn_verify_backend] on this GPU needs --mamba-ssm-dtype bfloat16",
    ),
    *under(lambda c: c.enable_linear_replayssm, _REPLAY),
    *under(lambda c: c.enable_linear_replayssm_spec, _SPECULATIVE_REPLAY),
    *under(lambda c: c.enable_gdn_replayssm_spec, _DELTA_REPLAY),
    Refusal(
        lambda c: (
            c.mamba_radix_cache_strategy == "extra_buffer_lazy"
            and keeps_states_now(c)
            and is_disaggregated(c)
        ),
        "[mamba_radix_cache_strategy] does not go with [disaggregation_mode]",
        "--mamba-radix-cache-strategy extra_buffer",
        since=(0, 5, 17),
    ),
    Refusal(
        lambda c: (
            c.mamba_radix_cache_strategy == "extra_buffer_lazy"
            and keeps_states_now(c)
            and c.asked.speculative_num_draft_tokens is not None
        ),
        "[mamba_radix_cache_strategy] does not go with [speculative_num_draft_tokens]",
        until=(0, 5, 17),
    ),
)

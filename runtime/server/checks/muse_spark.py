"""What Muse Spark does not do. srt/arg_groups/layernorm_sp_hook.py, pd_disaggregation_hook.py."""

from __future__ import annotations

from runtime.server.architectures import MUSE_SPARK
from runtime.server.checks.budgets import MEGAMOE, capacity
from runtime.server.checks.row import Refusal, apart, under
from runtime.server.choices import Choices

_WHOLE_EXPERTS = ((4, 4), (8, 8))
_SPREAD, _ONE_KERNEL = "[enable_layernorm_sp]", "[enable_megamoe_for_layernorm_sp]"


def _is_stored_otherwise(c: Choices) -> bool:
    is_plain = c.quantization is None and c.enable_megamoe_for_layernorm_sp
    return c.quantization != "modelopt_fp4" and not is_plain


def _is_sent_otherwise(c: Choices) -> bool:
    known = ("none", "flashinfer") if c.enable_megamoe_for_layernorm_sp else ("flashinfer",)
    return c.moe_a2a_backend not in known


def _is_captured_shorter(c: Choices) -> bool:
    longest = max(c.prefill.sizes or (0,))
    is_breakable = c.prefill.backend == "breakable"
    return is_breakable and (c.chunked_prefill_size <= 0 or longest < c.chunked_prefill_size)


def _sends_more(c: Choices) -> bool:
    chunk, room = c.chunked_prefill_size, capacity(c, MEGAMOE)
    tokens = chunk if chunk > 0 else c.max_prefill_tokens
    return min(tokens, room) <= 0 or -(-tokens // c.tp_size) > room


_BY_ONE_KERNEL = (
    apart("enable_megamoe_for_layernorm_sp", "enable_mixed_chunk"),
    Refusal(
        _sends_more,
        f"{_ONE_KERNEL}: a rank's part of [chunked_prefill_size] is more than {MEGAMOE} holds",
        f"raise {MEGAMOE}, or lower --chunked-prefill-size",
    ),
    Refusal(
        _is_captured_shorter,
        f"{_ONE_KERNEL} needs breakable prefill graphs as long as [chunked_prefill_size]",
    ),
)
_SPREADING = (
    Refusal(
        lambda c: (c.tp_size, c.ep_size) not in _WHOLE_EXPERTS,
        f"{_SPREAD} of Muse Spark: [ep_size] is not that of [tp_size], 4 or 8",
    ),
    Refusal(
        _is_stored_otherwise,
        f"{_SPREAD} of Muse Spark needs --quantization modelopt_fp4, or --enable-megamoe-for-layernorm-sp",
    ),
    Refusal(_is_sent_otherwise, f"{_SPREAD} of Muse Spark does not go with [moe_a2a_backend]"),
    Refusal(
        lambda c: c.moe_runner_backend != "flashinfer_trtllm",
        f"{_SPREAD} of Muse Spark needs --moe-runner-backend flashinfer_trtllm",
    ),
    *under(lambda c: c.enable_megamoe_for_layernorm_sp, _BY_ONE_KERNEL),
)

ROWS = (
    *under(lambda c: c.model.architecture == MUSE_SPARK and c.enable_layernorm_sp, _SPREADING, (0, 5, 23)),
    Refusal(
        lambda c: (
            c.model.architecture == MUSE_SPARK and c.language_only and c.enable_adaptive_dispatch_to_encoder
        ),
        "[enable_adaptive_dispatch_to_encoder]: Muse Spark has no encoder under [language_only]",
    ),
)

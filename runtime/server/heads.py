"""How groups of DP attention come to their logits: by a head of all ranks, or by one of their own."""

from __future__ import annotations

from runtime.server.choices import Choices
from runtime.server.parallel_config import HeadOver


def head_over(c: Choices) -> HeadOver:
    """srt/layers/logits_processor.py, and _tp_lm_head_all_to_all_default of srt/arg_groups/overrides.py."""
    if c.attn_dp_size == 1:
        return "all ranks"
    if c.enable_dp_lm_head:
        return "a group"
    return "all ranks, exchanged" if _exchanges(c) else "all ranks"


def _exchanges(c: Choices) -> bool:
    if c.enable_tp_lm_head_all_to_all is not None:
        return bool(c.enable_tp_lm_head_all_to_all)
    decodes = c.release.exchanges_logits and c.disaggregation_mode == "decode"
    return decodes and c.tp_size == c.attn_dp_size and c.attn_cp_size == 1

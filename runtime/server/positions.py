"""How many positions a server's tables of angles have at least."""

from __future__ import annotations

# SGLANG_SPEC_EXPANSION_SAFETY_FACTOR, SGLANG_ROPE_CACHE_SAFETY_MARGIN and SGLANG_ROPE_CACHE_ALIGN
_SAFETY, _MARGIN, _ALIGNED = 2, 256, 128


def positions_reached(context_length: int, drafted: int) -> int:
    """reserve_rope_cache_for_long_sequences of srt/utils/common.py; `drafted`: tokens, of all steps."""
    return -(-(context_length + _SAFETY * drafted + _MARGIN) // _ALIGNED) * _ALIGNED

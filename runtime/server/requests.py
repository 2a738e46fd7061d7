"""How many requests run at once, and the rows of the dummy batch that follow from them."""

from __future__ import annotations

MORE_TOKENS_THAN_ANY_POOL = 1 << 40
MOST_REQUESTS = 4096


def max_running_requests(tokens: int, context_length: int, requested: int | None, attn_dp: int) -> int:
    """Per attention-DP rank."""
    if requested is not None:
        return min(max(1, requested // attn_dp), tokens // 2)
    return min(min(max(int(tokens / context_length * 512), 2048), MOST_REQUESTS), tokens // 2)

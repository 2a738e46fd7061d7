"""How many requests run at once, and the rows of the dummy batch that follow from them."""

from __future__ import annotations

MORE_TOKENS_THAN_ANY_POOL = 1 << 40
FEWEST_REQUESTS, MOST_REQUESTS = 2048, 4096


def max_running_requests(tokens: int, context_length: int, requested: int | None, attn_dp: int) -> int:
    """Of one rank of attention's data parallelism."""
    estimated = min(max(int(tokens / context_length * 512), FEWEST_REQUESTS), MOST_REQUESTS)
    return min(estimated if requested is None else share_of(requested, attn_dp), tokens // 2)


def share_of(requested: int, ranks: int) -> int:
    """One rank's of those that were asked for of the whole server."""
    return max(1, requested // ranks)

"""How many requests run at once, and the rows of the dummy batch that follow from them."""

from __future__ import annotations

from runtime.server.releases import Release

MORE_TOKENS_THAN_ANY_POOL = 1 << 40
FEWEST_REQUESTS, MOST_REQUESTS = 2048, 4096


def max_running_requests(
    tokens: int, context_length: int, requested: int | None, attn_dp: int, release: Release
) -> int:
    """Per attention-DP rank."""
    estimated = min(max(int(tokens / context_length * 512), FEWEST_REQUESTS), MOST_REQUESTS)
    if requested is None:
        return min(estimated, tokens // 2)
    share = requested // attn_dp
    if release.serves_one_request:
        share = max(1, share)
    return min(share, estimated if release.context_caps_requests else tokens // 2)

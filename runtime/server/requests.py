"""How many requests run at once, and the rows of the dummy batch that follow from them."""

from __future__ import annotations

from runtime.server.releases import Release

MORE_TOKENS_THAN_ANY_POOL = 1 << 40
FEWEST_REQUESTS, MOST_REQUESTS = 2048, 4096
_FEW_REQUESTS, _ARRIVING_EACH = 32, 2


def max_running_requests(
    tokens: int, context_length: int, requested: int | None, attn_dp: int, release: Release
) -> int:
    """Per attention-DP rank."""
    estimated = min(max(int(tokens / context_length * 512), FEWEST_REQUESTS), MOST_REQUESTS)
    if requested is None:
        return min(estimated, tokens // 2)
    share = share_of(requested, attn_dp, release)
    return min(share, estimated if release.context_caps_requests else tokens // 2)


def share_of(requested: int, ranks: int, release: Release) -> int:
    """One rank's of those that were asked for of the whole server."""
    share = requested // ranks
    return max(1, share) if release.serves_one_request else share


def arriving_beside(requests: int) -> int:
    """Rows of a decode server for requests whose keys are on their way, where nobody says how many."""
    return _ARRIVING_EACH * requests if requests <= _FEW_REQUESTS else 0

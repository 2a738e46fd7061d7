"""Whether there are as many experts as a token is to have."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.server.layer_config import MoEConfig


def unchosen(moe: MoEConfig | None) -> Iterator[str]:
    """A server ends at its first choice of these, if not before."""
    if moe is None:
        return
    experts, groups, best = (moe.num_experts, moe.num_groups, moe.top_k_groups)
    if moe.top_k > experts:
        yield f"num_experts_per_tok is {moe.top_k}: there are {experts} experts"
    elif experts % groups:
        yield f"{experts} experts are not evenly those of {groups} groups"
    elif best > groups:
        yield f"topk_group is {best}: there are {groups} groups of experts"
    elif moe.top_k > experts // groups * best:
        yield f"num_experts_per_tok is {moe.top_k}: {best} of {groups} groups have fewer experts"
    elif 1 < groups > experts // 2:
        (yield f"{groups} groups of {experts} experts: each is worth what its best 2 are")

"""Which experts a token goes to: softmax or sigmoid scores, groups, a correction bias, scaling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from runtime.devices.graph_break import fused_in_a_server
from runtime.layers.loading import Piece, Source
from runtime.moe.weights import TopK
from runtime.server.layer_config import MoEConfig
from runtime.server.releases import Wide

_FAR = 0.02  # twice the jitter of srt/models/phimoe.py, which no config.json changes


class Router(nn.Module):
    """Replicated on every rank. Scores are fp32, from logits of the model's dtype where not of fp32 too.

    `fused_shared`: experts behind the last that every token goes to. `numbers`: of tokens, each of which says
    by itself which experts it goes to; scores then say how much each of them counts.
    """

    ranks, rank = 1, 0  # each with the shared experts behind its own routed ones
    tokens: torch.Tensor | None = None  # of the rows that come next, by their numbers
    copy: torch.Tensor | None = None  # of its weight, in float32

    def __init__(
        self,
        names: tuple[str, ...],
        hidden: int,
        moe: MoEConfig,
        dtype: torch.dtype,
        device: torch.device,
        fused_shared: int = 0,
        numbers: int = 0,
        wide: Wide | None = None,
    ) -> None:
        super().__init__()
        self.names, self.moe, self.fused_shared = names, moe, fused_shared
        self.is_copied = wide == "copied"
        kept = torch.float32 if moe.router_in_fp32 or wide == "stored" else dtype
        self.outputs = moe.num_experts + moe.zero_experts
        self.weight = nn.Parameter(torch.empty(self.outputs, hidden, dtype=kept, device=device), False)
        self.bias = self._vector(moe.router_bias, dtype, device)
        corrected = torch.float32 if moe.correction_in_fp32 else dtype
        self.correction = self._vector(moe.correction_bias and not numbers, corrected, device)
        self.experts_of: nn.Parameter | None = None
        if numbers:
            told = torch.zeros(numbers, moe.top_k, dtype=torch.int32, device=device)
            self.experts_of = nn.Parameter(told, requires_grad=False)

    def _vector(self, wanted: bool, dtype: torch.dtype, device: torch.device) -> nn.Parameter | None:
        if not wanted:
            return None
        return nn.Parameter(torch.empty(self.outputs, dtype=dtype, device=device), False)

    def copy_wide(self) -> None:
        """At the first forward: srt/models/glm4_moe.py, once."""
        if self.is_copied and self.copy is None:
            self.copy = self.weight.float()

    def forward(self, x: torch.Tensor) -> TopK:
        if self.moe.routes_in_fp32 or self.is_copied:
            weight = self.weight.float() if self.copy is None else self.copy
            logits = nn.functional.linear(x.float(), weight, self.bias)
        else:
            logits = nn.functional.linear(x.to(self.weight.dtype), self.weight, self.bias)
        if self.moe.router_multiplier != 1:
            logits = logits * self.moe.router_multiplier
        if self.moe.router_cap is not None:
            logits = (logits.float() / self.moe.router_cap).tanh() * self.moe.router_cap
        with fused_in_a_server():
            chosen = self._chosen(logits.float())
            return self._with_shared(chosen) if self.fused_shared else chosen

    def _chosen(self, logits: torch.Tensor) -> TopK:
        if self.experts_of is None:
            return select_experts(logits, self.moe, self.correction)
        assert self.tokens is not None
        ids = self.experts_of[self.tokens]
        scores = _scored(logits, self.moe).gather(1, ids.long())
        return TopK(ids, _weights(scores, self.moe), logits)

    def finish(self) -> None:
        """After loading."""

    def spread(self, ranks: int, rank: int) -> None:
        """A rank's shared experts count a share, as those of all ranks are summed."""
        self.ranks, self.rank = ranks, rank

    def _with_shared(self, chosen: TopK) -> TopK:
        rows, each = chosen.ids.shape[0], self.moe.places // self.ranks
        first = (self.rank + 1) * each + self.rank * self.fused_shared
        numbers = torch.arange(first, first + self.fused_shared, dtype=torch.int32, device=chosen.ids.device)
        routed = chosen.ids
        if self.ranks > 1:
            routed = routed + routed // each * self.fused_shared
        share = chosen.weights.new_full((rows, self.fused_shared), 1 / self.ranks)
        return replace(
            chosen,
            ids=torch.cat((routed, numbers.expand(rows, -1)), dim=-1),
            weights=torch.cat((chosen.weights, share), dim=-1),
        )

    def pieces(self) -> Iterator[Piece]:
        yield Piece(self.weight, tuple(Source(f"{name}.weight") for name in self.names))
        if self.bias is not None:
            yield Piece(self.bias, tuple(Source(f"{name}.bias") for name in self.names))
        if self.correction is not None:
            beside = () if self.bias is not None else (Source(f"{name}.bias") for name in self.names)
            yield Piece(self.correction, (*_corrections(self.names), *beside))
        if self.experts_of is not None:
            yield Piece(self.experts_of, tuple(Source(f"{name}.tid2eid") for name in self.names))


def _corrections(names: tuple[str, ...]) -> Iterator[Source]:
    """In the router, beside it, or as one row of statistics."""
    for name in names:
        block = name.rpartition(".")[0]
        for place in (name, block, f"{block}.experts", f"{name}.moe_statics", f"{block}.moe_statics"):
            yield Source(f"{place}.e_score_correction_bias", view=torch.flatten)
        yield from (Source(f"{block}.{one}") for one in ("router_bias", "expert_bias"))


def select_experts(logits: torch.Tensor, moe: MoEConfig, correction: torch.Tensor | None) -> TopK:
    if moe.scoring == "near best":
        return _near_best(logits, moe.top_k)
    # The correction balances the choice alone: weights are the uncorrected scores.
    scores = _scored(logits, moe)
    choice = scores if correction is None else scores + correction
    if moe.from_each_group:
        ids = _best_of_each(choice, moe)
    else:
        choice = _best_groups(choice, moe) if moe.num_groups > 1 else choice
        ids = choice.topk(moe.top_k, dim=-1).indices
    return TopK(ids.to(torch.int32), _weights(scores.gather(1, ids), moe), logits, correction)


def _near_best(logits: torch.Tensor, top_k: int) -> TopK:
    """One after the other, each the best that is left; it counts by a softmax over those not far below it."""
    left, ids, weights = logits, [], []
    for _ in range(top_k):
        best, chosen = left.max(dim=-1, keepdim=True)
        is_far = (best - logits) / logits.abs().clamp(min=best) > _FAR
        weights.append(left.masked_fill(is_far, float("-inf")).softmax(dim=-1).gather(1, chosen))
        ids.append(chosen)
        left = left.scatter(1, chosen, float("-inf"))
    return TopK(torch.cat(ids, dim=-1).to(torch.int32), torch.cat(weights, dim=-1), logits)


def _weights(chosen: torch.Tensor, moe: MoEConfig) -> torch.Tensor:
    """How much each expert counts, by the scores of those that were chosen."""
    weights = chosen
    if moe.renormalize:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + moe.least_sum)
    return weights if moe.routed_scaling_factor == 1.0 else weights * moe.routed_scaling_factor


def _scored(logits: torch.Tensor, moe: MoEConfig) -> torch.Tensor:
    if moe.scoring == "sqrtsoftplus":
        return nn.functional.softplus(logits).sqrt()
    return logits.sigmoid() if moe.scoring == "sigmoid" else logits.softmax(dim=-1)


def _best_of_each(choice: torch.Tensor, moe: MoEConfig) -> torch.Tensor:
    grouped = choice.unflatten(-1, (moe.num_groups, -1))
    best = grouped.topk(moe.top_k // moe.num_groups, dim=-1).indices
    first = torch.arange(0, choice.shape[-1], grouped.shape[-1], device=choice.device)
    return (best + first[:, None]).flatten(-2)


def _best_groups(choice: torch.Tensor, moe: MoEConfig) -> torch.Tensor:
    """A group is worth its best experts; experts outside the best groups are ruled out."""
    grouped = choice.unflatten(-1, (moe.num_groups, -1))
    worth = grouped.topk(moe.group_worth, dim=-1).values.sum(dim=-1)
    best = worth.topk(moe.top_k_groups, dim=-1).indices
    ruled_out = torch.ones_like(worth, dtype=torch.bool).scatter_(1, best, False)
    return grouped.masked_fill(ruled_out.unsqueeze(-1), float("-inf")).flatten(-2)

"""Which experts a token goes to: softmax or sigmoid scores, groups, a correction bias, scaling."""

from dataclasses import replace

import torch
from torch import nn

from runtime.moe.weights import TopK
from runtime.server.layer_config import MoEConfig


class Router(nn.Module):
    """The same on every rank. Scores are fp32; they come from logits in the model's dtype or in fp32.

    `fused_shared` is the number of shared experts that run after the routed ones and get every token.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        hidden: int,
        moe: MoEConfig,
        dtype: torch.dtype,
        device: torch.device,
        fused_shared: int = 0,
    ) -> None:
        super().__init__()
        self.names, self.moe, self.fused_shared = names, moe, fused_shared
        kept = torch.float32 if moe.router_in_fp32 else dtype
        self.weight = nn.Parameter(torch.empty(moe.num_experts, hidden, dtype=kept, device=device), False)
        self.bias = self._vector(dtype, device) if moe.biases else None
        self.correction = self._vector(torch.float32, device) if moe.correction_bias else None

    def _vector(self, dtype: torch.dtype, device: torch.device) -> nn.Parameter:
        return nn.Parameter(torch.empty(self.moe.num_experts, dtype=dtype, device=device), False)

    def forward(self, x: torch.Tensor) -> TopK:
        logits = nn.functional.linear(x.to(self.weight.dtype), self.weight, self.bias)
        chosen = select_experts(logits.float(), self.moe, self.correction)
        return self._with_shared(chosen) if self.fused_shared else chosen

    def _with_shared(self, chosen: TopK) -> TopK:
        rows, first = chosen.ids.shape[0], self.moe.num_experts
        numbers = torch.arange(first, first + self.fused_shared, dtype=torch.int32, device=chosen.ids.device)
        ones = chosen.weights.new_ones(rows, self.fused_shared)
        return replace(
            chosen,
            ids=torch.cat((chosen.ids, numbers.expand(rows, -1)), dim=-1),
            weights=torch.cat((chosen.weights, ones), dim=-1),
        )


def select_experts(logits: torch.Tensor, moe: MoEConfig, correction: torch.Tensor | None) -> TopK:
    """Choose experts by corrected scores, but weigh them by the uncorrected scores."""
    scores = logits.sigmoid() if moe.scoring == "sigmoid" else logits.softmax(dim=-1)
    choice = scores if correction is None else scores + correction
    choice = _best_groups(choice, moe) if moe.num_groups > 1 else choice
    ids = choice.topk(moe.top_k, dim=-1).indices
    weights = scores.gather(1, ids)
    if moe.renormalize:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
    if moe.routed_scaling_factor != 1.0:
        weights = weights * moe.routed_scaling_factor
    return TopK(ids.to(torch.int32), weights, logits, correction)


def _best_groups(choice: torch.Tensor, moe: MoEConfig) -> torch.Tensor:
    """Rank groups by the sum of their two best experts, and exclude experts outside the best groups."""
    grouped = choice.unflatten(-1, (moe.num_groups, -1))
    worth = grouped.topk(2, dim=-1).values.sum(dim=-1)
    best = worth.topk(moe.top_k_groups, dim=-1).indices
    ruled_out = torch.ones_like(worth, dtype=torch.bool).scatter_(1, best, False)
    return grouped.masked_fill(ruled_out.unsqueeze(-1), float("-inf")).flatten(-2)

"""The call by which tactics of FlashInfer's CUTLASS MoE are judged: a server's call, on synthetic tokens.

Routings alternate: even ones, as random logits give, and some in which a few experts get more tokens, as with
trained routers. The tactic that wins on all of them is the best for a server.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from runtime.autotune.layer import SKEWS, LayerTrial
from runtime.moe.flashinfer_call import call_with, takes

OPS = ("trtllm::fused_moe::gemm1", "trtllm::fused_moe::gemm2")


def cutlass_trial(function: Any, arguments: dict[str, Any]) -> LayerTrial | None:
    """Return the layer's trial, or None if this FlashInfer (before 0.7) does not take tactics in a call."""
    if not takes(function, "profile_ids") or not arguments["input"].is_cuda:
        return None
    return LayerTrial(OPS, partial(CutlassBatch, function, arguments))


class CutlassBatch:
    """A batch in fixed buffers, so that a captured graph of the forward reads the routing set last."""

    def __init__(self, function: Any, arguments: dict[str, Any], rows: int, seed: int) -> None:
        self._function, self._seed = function, seed
        x, ids, out = (arguments[name] for name in ("input", "token_selected_experts", "output"))
        local, top_k = arguments["fc1_expert_weights"].shape[0], ids.shape[1]
        self._experts = Experts(local, arguments["ep_size"], arguments["ep_rank"], top_k)
        generator = torch.Generator(x.device).manual_seed(seed)
        tokens = torch.randn(rows, x.shape[1], device=x.device, generator=generator) * 0.05
        self._ids = torch.zeros(rows, top_k, dtype=ids.dtype, device=x.device)
        self._scores = torch.zeros(rows, top_k, device=x.device)
        self._arguments = {
            **arguments,
            "input": tokens.to(x.dtype),
            "output": torch.empty(rows, out.shape[1], dtype=out.dtype, device=x.device),
            "token_selected_experts": self._ids,
            "token_final_scales": self._scores,
        }

    def route(self, number: int) -> None:
        skew, seed = SKEWS[number % len(SKEWS)], self._seed + number // len(SKEWS)
        scores, ids = routed(len(self._ids), self._experts, skew, self._ids.device, seed)
        self._scores.copy_(scores)
        self._ids.copy_(ids)

    def forward(self, tactics: Sequence[Any]) -> object:
        return call_with(self._function, {**self._arguments, "profile_ids": list(tactics)})


@dataclass(frozen=True, slots=True)
class Experts:
    local: int
    ranks: int
    rank: int
    top_k: int


def routed(
    rows: int, experts: Experts, skew: float, device: torch.device, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scores and experts of each row. Every rank has equally many popular experts, and this rank
    gets a fair share of the work, also at one row, where chance may give it none."""
    generator = torch.Generator(device).manual_seed(seed)
    local, ranks = experts.local, experts.ranks
    # Not on the device, for which torch would have to compile it first.
    popular = torch.special.ndtri((torch.arange(local) + 0.5) / local).to(device)
    popular = popular[torch.randperm(local, generator=generator, device=device)]
    logits = torch.randn(rows, local * ranks, generator=generator, device=device)
    scores, chosen = (logits + skew * popular.repeat(ranks)).softmax(-1).topk(experts.top_k)
    owners = (chosen // local).flatten()
    work = torch.zeros(ranks, device=device).scatter_add_(
        0, owners, torch.ones(1, device=device).expand_as(owners)
    )
    fairest = (work - max(1.0, rows * experts.top_k / ranks)).abs().argmin()
    return scores, (chosen + (experts.rank - fairest) * local) % (local * ranks)

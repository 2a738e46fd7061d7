"""Experts that are linear layers of their own, each whole on one rank, and run one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from runtime.forward.dp_attention import gather, scatter
from runtime.layers.linear import Linear, Part
from runtime.layers.loading import Piece
from runtime.models.build import Build
from runtime.moe.router import Router


class LooseExperts(nn.Module):
    """Mixtral's in most methods: srt/models/mixtral_quant.py. Each is given all rows, chosen or not."""

    def __init__(self, build: Build, name: str) -> None:
        super().__init__()
        moe, self.comm = build.model.moe, build.comm
        assert moe is not None
        sizes = build.model.hidden_size, moe, build.dtype, build.device
        self.router = Router((f"{name}.gate",), *sizes)
        self.numbers = own_experts(moe.num_experts, build.comm.size("tp"), build.comm.rank("tp"))
        inner = moe.intermediate_size
        self.experts = nn.ModuleList(LooseExpert(build, f"{name}.experts.{n}", inner) for n in self.numbers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = gather(x, self.comm)
        topk, total = self.router(rows), None
        for number, expert in zip(self.numbers, self.experts, strict=True):
            share = (topk.weights * (topk.ids == number)).sum(dim=-1, keepdim=True)
            answer = expert(rows).mul_(share)
            total = answer if total is None else total.add_(answer)
        assert total is not None
        return scatter(total, x.shape[0], self.comm)

    def pieces(self) -> Iterator[Piece]:
        yield from self.router.pieces()
        for expert in self.experts:
            assert isinstance(expert, LooseExpert)
            yield from expert.pieces()


class LooseExpert(nn.Module):
    def __init__(self, build: Build, name: str, intermediate: int) -> None:
        super().__init__()
        hidden, inner = slice(0, build.model.hidden_size), slice(0, intermediate)
        self.gate = build.linear([Part(f"{name}.w1", inner)], hidden)
        self.down = build.linear([Part(f"{name}.w2", hidden)], inner)
        self.up = build.linear([Part(f"{name}.w3", inner)], hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        opened = self.gate(x)
        opened = F.silu(opened)
        return self.down(opened * self.up(x))

    def pieces(self) -> Iterator[Piece]:
        for part in (self.gate, self.down, self.up):
            assert isinstance(part, Linear)
            yield from part.pieces()


def own_experts(experts: int, ranks: int, rank: int) -> range:
    """As numpy.array_split: the first ranks have one more where they do not go round."""
    each, more = divmod(experts, ranks)
    start = rank * each + min(rank, more)
    return range(start, start + each + (rank < more))

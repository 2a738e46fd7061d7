"""Experts beside some that all tokens ask, and that their router scores with those that it chooses."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from runtime.layers.loading import Piece, Source, length, shard
from runtime.models.build import Build
from runtime.models.mlp import MoELayer
from runtime.moe.backends import MoEBackend
from runtime.moe.dispatch import Dispatcher
from runtime.moe.dispatcher import StandardDispatcher
from runtime.moe.router import Router
from runtime.moe.weights import TopK
from runtime.server.errors import Unsupported
from runtime.server.layer_config import MoEConfig

_ROWS = 8  # of a router's matrix, which come in so many


class SinkRouter(Router):
    """Those that it chooses and those that all ask share out a softmax of their scores' logarithms:
    srt/models/inkling_common/moe.py."""

    counts: torch.Tensor | None = None  # [T, sinks], of the rows that it was given last

    def __init__(self, build: Build, name: str, moe: MoEConfig) -> None:
        super().__init__((name,), build.model.hidden_size, moe, build.dtype, build.device)
        self.total = moe.num_experts + moe.sinks
        rows = -(-self.total // _ROWS) * _ROWS
        self.weight = nn.Parameter(self.weight.new_zeros(rows, self.weight.shape[1]), requires_grad=False)
        one = torch.empty(1, dtype=torch.float32, device=build.device)
        self.global_scale = nn.Parameter(one, requires_grad=False)

    def forward(self, x: torch.Tensor) -> TopK:
        logits = F.linear(x.float(), self.weight.float())[:, : self.total]
        own, sinks = logits.split([self.moe.num_experts, self.moe.sinks], dim=-1)
        assert self.correction is not None
        ids = (own.sigmoid() + self.correction.float()).topk(self.moe.top_k, dim=-1).indices
        shares = F.logsigmoid(torch.cat([own.gather(-1, ids), sinks], dim=-1)).softmax(dim=-1)
        weights, self.counts = (shares * (self.moe.routed_scaling_factor * self.global_scale)).split(
            [self.moe.top_k, self.moe.sinks], dim=-1
        )
        return TopK(ids.to(torch.int32), weights.contiguous(), own, self.correction)

    def pieces(self) -> Iterator[Piece]:
        name = self.names[0]
        assert self.correction is not None
        yield Piece(self.weight[: self.total], (Source(f"{name}.weight"),))
        yield Piece(self.correction, (Source(f"{name}.bias"),))
        yield Piece(self.global_scale, (Source(f"{name}.global_scale"),))


class SinkExperts(MoELayer):
    """The shared experts are split over all ranks, whatever the others are. Their second matrices stand
    beside each other once more, for one product."""

    joined: torch.Tensor

    def __init__(self, build: Build, name: str, dispatcher: Dispatcher, backend: MoEBackend) -> None:
        if not isinstance(dispatcher, StandardDispatcher):
            raise Unsupported(
                f"--moe-a2a-backend {build.runtime.moe_a2a_backend}: this runtime has shared experts that a "
                "router scores on every rank alone"
            )
        super().__init__(build, name, dispatcher, backend)
        moe, comm, hidden = build.model.moe, build.comm, build.model.hidden_size
        assert moe is not None
        self.name, self.scored = f"{name}.{build.model.names.shared}", SinkRouter(build, f"{name}.gate", moe)
        self.router = self.scored
        what = "the shared experts' intermediate size"
        self.inner = shard(moe.intermediate_size, comm.size("tp"), comm.rank("tp"), what)
        inner = length(self.inner)

        def made(*shape: int) -> torch.Tensor:
            return torch.empty(shape, dtype=build.dtype, device=build.device)

        self.up = nn.Parameter(made(moe.sinks, 2 * inner, hidden), requires_grad=False)
        self.down = nn.Parameter(made(moe.sinks, hidden, inner), requires_grad=False)
        self.register_buffer("joined", made(moe.sinks * inner, hidden), persistent=False)

    def finalize(self) -> None:
        super().finalize()
        self.joined.copy_(self.down.transpose(1, 2).flatten(0, 1))

    def forward(self, x: torch.Tensor, tokens: torch.Tensor | None = None) -> torch.Tensor:
        rows, topk = self.dispatcher.dispatch(x, self._route)
        counts, self.scored.counts = self.scored.counts, None
        assert counts is not None
        both = self._experts(rows, topk).add_(self._sinks(rows, counts))
        return self.dispatcher.combine(both, x.shape[0])

    def _sinks(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Rows of gates and of ups take turns."""
        both = F.linear(rows, self.up.flatten(0, 1)).unflatten(-1, (self.up.shape[0], -1, 2))
        opened = F.silu(both[..., 0]) * both[..., 1] * counts[..., None].to(rows.dtype)
        return opened.flatten(1) @ self.joined

    def pieces(self) -> Iterator[Piece]:
        yield from super().pieces()
        rows = slice(2 * self.inner.start, 2 * self.inner.stop)
        every = slice(0, self.up.shape[0]), slice(0, self.up.shape[2])
        ups, downs = (every[0], rows, every[1]), (*every, self.inner)
        yield Piece(self.up, (Source(f"{self.name}.shared_w13_weight", ups),))
        yield Piece(self.down, (Source(f"{self.name}.shared_w2_weight", downs),))

"""Experts whose router is an MLP, which goes on from what the router before it made of the same tokens."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.linear import Part
from runtime.layers.loading import Piece, Source
from runtime.layers.quantization import PLAIN
from runtime.models.build import Build
from runtime.models.mlp import MoELayer
from runtime.moe.backends import MoEBackend
from runtime.moe.dispatch import Dispatcher
from runtime.moe.router import Router
from runtime.moe.weights import TopK
from runtime.server.layer_config import MoEConfig


class ChainedRouter(Router):
    """Zaya's: srt/models/zaya.py. The first one has the scale of a state, too, which it is not given."""

    before: torch.Tensor | None = None
    after: torch.Tensor | None = None

    def __init__(self, build: Build, name: str, moe: MoEConfig, width: int) -> None:
        super().__init__((f"{name}.router_mlp.4",), width, moe, build.dtype, build.device)
        self.name, whole, own = name, slice(0, build.model.hidden_size), slice(0, width)
        self.down = build.linear([Part(f"{name}.down_proj", own)], whole, scheme=PLAIN, bias=True)
        self.norm = build.norm(f"{name}.rmsnorm_eda", width)
        scale = torch.empty(width, dtype=build.dtype, device=build.device)
        self.scale = nn.Parameter(scale, requires_grad=False)
        self.inner = nn.ModuleList(
            build.linear([Part(f"{name}.router_mlp.{place}", own)], own, scheme=PLAIN, bias=True)
            for place in (0, 2)
        )

    def forward(self, x: torch.Tensor) -> TopK:
        rows = self.down(x)
        if self.before is not None:
            rows = rows + self.before * self.scale
        self.after, rows = rows, self.norm(rows)
        for inner in self.inner:
            rows = nn.functional.gelu(inner(rows))
        return super().forward(rows)

    def pieces(self) -> Iterator[Piece]:
        assert self.correction is not None
        yield Piece(self.weight, tuple(Source(f"{name}.weight") for name in self.names))
        yield Piece(self.correction, (Source(f"{self.name}.balancing_biases"),))
        yield Piece(self.scale, (Source(f"{self.name}.router_states_scale"),))
        for part in (self.down, self.norm, *self.inner):
            yield from part.pieces()


class ChainedExperts(MoELayer):
    def __init__(self, build: Build, name: str, dispatcher: Dispatcher, backend: MoEBackend) -> None:
        super().__init__(build, name, dispatcher, backend)
        moe = build.model.moe
        assert moe is not None and moe.router_width is not None
        self.chain = ChainedRouter(build, f"{name}.router", moe, moe.router_width)
        self.router = self.chain

    def chained(
        self, x: torch.Tensor, before: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What experts answer, and what the next router goes on from."""
        self.chain.before = before
        answer = self(x)
        after, self.chain.before, self.chain.after = self.chain.after, None, None
        return answer, after

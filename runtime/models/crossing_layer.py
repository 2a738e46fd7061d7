"""Layers that attend to images alone (srt/models/mllama.py, moss_vl.py), of which there are none here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.loading import Piece, Source
from runtime.models.build import Build
from runtime.models.layer import DecoderLayer, StageState

_GATES = ("cross_attn_attn_gate", "cross_attn_mlp_gate")


class CrossingLayer(DecoderLayer):
    """Without an image it is skipped. A graph, which images may come to, runs it and hides its answers."""

    def __init__(self, build: Build, layer_id: int, *shared: Any) -> None:
        super().__init__(build, layer_id, *shared)
        self.gates = nn.ParameterList(
            nn.Parameter(torch.empty(1, dtype=build.dtype, device=build.device), requires_grad=False)
            for _ in _GATES
        )

    def begun(self, state: StageState, batch: ForwardBatch) -> StageState:
        is_ready = state.residual is None or not batch.captured
        return state if is_ready else StageState(state.total())

    def forward(
        self,
        state: StageState,
        batch: ForwardBatch,
        pool: KVPool,
        table: torch.Tensor | None,
        given: torch.Tensor | None = None,
    ) -> StageState:
        """Step by step as SGLang's, which holds as much at each."""
        if not batch.captured:
            return state
        assert self.mixer is not None and self.mixer_norms is not None and self.mlp is not None
        assert self.mlp_norms is not None
        rows, seen = state.hidden, batch.positions.new_zeros(batch.num_tokens, 1, dtype=torch.bool)
        hidden = self.mixer_norms.enter(rows, None)[0]
        hidden = self.comm.all_reduce(self.mixer(hidden, batch, pool, table), "attn_tp")
        hidden = seen * hidden
        hidden = rows + self.gates[0].tanh() * hidden
        rows = hidden
        hidden = self.mlp_norms.enter(rows, None)[0]
        hidden = self.mlp(hidden)
        hidden = seen * hidden
        return StageState(rows + self.gates[1].tanh() * hidden)

    def pieces(self) -> Iterator[Piece]:
        yield from super().pieces()
        for gate, name in zip(self.gates, _GATES, strict=True):
            yield Piece(gate, (Source(f"{self.name}.{name}"),))


def layer_of(build: Build, layer_id: int, *shared: Any) -> DecoderLayer:
    model = build.model
    crosses = model.keeps_tokens(layer_id) and model.layer_attention(layer_id).crosses
    return (CrossingLayer if crosses else DecoderLayer)(build, layer_id, *shared)

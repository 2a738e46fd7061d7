"""What a model has in place of a head that scores prompts, or embeds them: whole on every rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from runtime.forward.pooler import Rows
from runtime.layers.linear import Part
from runtime.layers.loading import Piece
from runtime.layers.quantization import PLAIN
from runtime.models.build import Build
from runtime.server.table_config import DenseConfig, ScoresConfig


class Scores(nn.Module):
    def __init__(self, build: Build, config: ScoresConfig) -> None:
        super().__init__()
        width, self.by_tanh = build.model.hidden_size, config.by == "tanh"
        rows = [width] * (len(config.names) - 1) + [config.labels]
        self._stack = [
            build.linear([Part(name, slice(0, count))], slice(0, width), scheme=PLAIN, bias=config.bias)
            for name, count in zip(config.names, rows, strict=True)
        ]
        self.matrices = nn.ModuleList(self._stack)
        self.scores_all = config.scores_all
        self.weights = Weights(build, config) if config.weights else None

    def forward(self, hidden: torch.Tensor, pick: Rows) -> torch.Tensor:
        if not self.scores_all:
            return self._of(pick(hidden))
        scores = self._of(hidden)
        if self.weights is None:
            return pick(scores)
        weights = self.weights(hidden)
        return (pick(scores)[:, ::2] * pick(weights)).sum(-1, keepdim=True)

    def _of(self, rows: torch.Tensor) -> torch.Tensor:
        for matrix in self._stack[:-1]:
            rows = matrix(rows).tanh() if self.by_tanh else matrix(rows).relu()
        scores: torch.Tensor = self._stack[-1](rows)
        return scores

    def pieces(self) -> Iterator[Piece]:
        """transformers' classes have no biases where SGLang's have: as if they were nothing."""
        for matrix in self._stack:
            for piece in matrix.pieces():
                is_bias = piece.sources[0].name.endswith(".bias")
                yield replace(piece, may_lack=True) if is_bias else piece
        if self.weights is not None:
            yield from self.weights.pieces()


class Weights(nn.Module):
    """In float16, whatever the model is in."""

    def __init__(self, build: Build, config: ScoresConfig) -> None:
        super().__init__()
        build, width = replace(build, dtype=torch.float16), build.model.hidden_size
        rows = [width] * (len(config.weights) - 1) + [config.labels // 2]
        self._stack = [
            build.linear([Part(name, slice(0, count))], slice(0, width), scheme=PLAIN, bias=True)
            for name, count in zip(config.weights, rows, strict=True)
        ]
        self.matrices = nn.ModuleList(self._stack)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        rows = hidden.to(torch.float16)
        for matrix in self._stack[:-1]:
            rows = F.selu(matrix(rows))
        found: torch.Tensor = self._stack[-1](rows)
        return found

    def pieces(self) -> Iterator[Piece]:
        for matrix in self._stack:
            yield from matrix.pieces()


class Dense(nn.Module):
    """What sentence-transformers keeps beside a checkpoint, one behind the other."""

    def __init__(self, build: Build, configs: Sequence[DenseConfig]) -> None:
        super().__init__()
        self._stack = [
            build.linear(
                [Part(f"{one.folder}.linear", slice(0, one.outputs))],
                slice(0, one.inputs),
                scheme=PLAIN,
                bias=one.bias,
            )
            for one in configs
        ]
        self.matrices = nn.ModuleList(self._stack)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        for matrix in self._stack:
            rows = matrix(rows)
        return rows

    def pieces(self) -> Iterator[Piece]:
        for matrix in self._stack:
            yield from matrix.pieces()

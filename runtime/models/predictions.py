"""Streams that a layer predicts, computes one of, and corrects: srt/models/gemma3n_causal.py.

They are [streams, T, H], as each is a row of its own wherever it is multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.linear import Part
from runtime.layers.loading import Piece, Source
from runtime.models.build import Build
from runtime.models.gathered import Gathered
from runtime.server.residual_config import PredictionsConfig

_SHORTEST = 1e-5  # as the mean square of a stream


class Predictions(nn.Module):
    """In one layer, whole on every rank. A row says by a tanh how much each coefficient counts."""

    def __init__(self, build: Build, name: str, config: PredictionsConfig) -> None:
        super().__init__()
        hidden, count = build.model.hidden_size, config.count
        self.config, self.name, self.share = config, name, 1 / hidden
        of_streams = slice(0, count)
        self.scale = nn.Parameter(torch.empty(hidden, dtype=torch.float32, device=build.device), False)
        self.correcting = build.linear([Part(f"{name}.correction_coefs", of_streams)], of_streams)
        self.predicting = build.linear([Part(f"{name}.prediction_coefs", slice(0, count**2))], of_streams)
        self.router = build.linear([Part(f"{name}.modality_router", of_streams)], slice(0, hidden))
        self.norm = build.norm_of_rows(f"{name}.router_norm")

    def predict(self, streams: torch.Tensor) -> torch.Tensor:
        count = self.config.count
        mixes = self.predicting(self._weights(streams[self.config.active]))
        mixed = torch.matmul(streams.permute(1, 2, 0), mixes.unflatten(-1, (count, count)).transpose(1, 2))
        mixed = mixed.permute(2, 0, 1)
        mixed += streams
        return mixed.contiguous()

    def correct(self, predicted: torch.Tensor, computed: torch.Tensor) -> torch.Tensor:
        weights = self._weights(computed)
        missed = computed - predicted[self.config.active]
        missed = missed.repeat(self.config.count, 1, 1)
        corrected = missed * (self.correcting(weights) + 1).T.unsqueeze(-1)
        corrected += predicted
        return corrected

    def read(self, corrected: torch.Tensor) -> torch.Tensor:
        """What the layer's inputs are asked with."""
        active = corrected[self.config.active]
        return active * self.scale.to(active.dtype) if self.config.scales else active

    def _weights(self, row: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.router(self.norm(row) * self.share).float()).to(row.dtype)

    def pieces(self) -> Iterator[Piece]:
        yield Piece(self.scale, (Source(f"{self.name}.correct_output_scale"),))
        for part in (self.correcting, self.predicting, self.router, self.norm):
            yield from part.pieces()


class _Others(nn.Module):
    """A matrix for each stream but the first, made as long as that."""

    def __init__(self, build: Build, name: str, config: PredictionsConfig) -> None:
        super().__init__()
        hidden = build.model.hidden_size
        made = (Gathered(build, f"{name}.{one}", hidden, hidden) for one in range(config.count - 1))
        self.matrices = nn.ModuleList(made)

    def pieces(self) -> Iterator[Piece]:
        for matrix in self.matrices:
            assert isinstance(matrix, Gathered)
            yield from matrix.pieces()


class FirstStreams(_Others):
    def forward(self, row: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """And what they are made of, which SGLang holds until the last layer is through."""
        length, made, last = _length(row), [row], row
        for matrix in self.matrices:
            last = matrix(row)
            made.append(_as_long(last, length))
        return torch.stack(made), (*made, last)


class LastStreams(_Others):
    """Their mean, for the last norm."""

    def forward(self, streams: torch.Tensor) -> torch.Tensor:
        first, *others = streams.unbind()
        length = _length(first)
        made = (_as_long(matrix(row), length) for matrix, row in zip(self.matrices, others, strict=True))
        return torch.stack([first, *made]).mean(dim=0)


def _length(row: torch.Tensor, least: float = 0.0) -> torch.Tensor:
    return (row**2).mean(dim=-1, keepdim=True).clamp_(min=least) ** 0.5


def _as_long(row: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    return row * (length / _length(row, _SHORTEST))


def first_streams(build: Build) -> FirstStreams | None:
    config = build.model.predictions
    return None if config is None else FirstStreams(build, "model.altup_projections", config)


def last_streams(build: Build) -> LastStreams | None:
    config = build.model.predictions
    return None if config is None else LastStreams(build, "model.altup_unembed_projections", config)

"""Positions that are learned: rows of a table, added to those of tokens."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from runtime.layers.loading import Piece, Source
from runtime.models.build import Build
from runtime.models.narrow_tables import into_rows
from runtime.server.table_config import PlacesConfig


class Places(nn.Module):
    """Whole on every rank of the first stage."""

    def __init__(self, build: Build, config: PlacesConfig) -> None:
        super().__init__()
        self.name, self.before = config.name, config.before
        size = config.before + build.model.max_position, build.model.hidden_size
        rows = torch.empty(size, dtype=build.dtype, device=build.device)
        self.weight = nn.Parameter(rows, requires_grad=False)
        self.into = into_rows(build)

    def forward(self, hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        rows = positions + self.before if self.before else positions
        found = F.embedding(rows, self.weight)
        return (hidden if self.into is None else self.into(hidden)) + found

    def pieces(self) -> Iterator[Piece]:
        yield from () if self.into is None else self.into.pieces()
        yield Piece(self.weight, (Source(f"{self.name}.weight"),))

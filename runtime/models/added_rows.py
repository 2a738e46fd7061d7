"""What is added to a token's row before the first layer, and their norm: srt/models/bert.py, roberta.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.layers.embedding import TokenEmbedding
from runtime.layers.loading import Piece
from runtime.models.build import Build
from runtime.server.table_config import AddedRowsConfig


class AddedRows(nn.Module):
    """BERT's tables are split as the vocabulary's is, RoBERTa's whole. Nobody reads what is `idle`."""

    def __init__(self, build: Build, config: AddedRowsConfig) -> None:
        super().__init__()
        self.comm, self.padding = build.comm, config.padding
        self.positions = self._table(build, f"{config.name}.position_embeddings", config.positions)
        self.types = self._table(build, f"{config.name}.token_type_embeddings", config.types)
        self.norm = build.norm_of_rows(f"{config.name}.LayerNorm")
        idle = torch.empty(1, config.positions, dtype=build.dtype, device=build.device)
        self.idle = nn.Parameter(idle, requires_grad=False)

    def _table(self, build: Build, name: str, rows: int) -> TokenEmbedding:
        is_split = self.padding is None
        model, group = replace(build.model, vocab_size=rows), "attn_tp" if is_split else ""
        return TokenEmbedding(name, model, build.comm, group, build.dtype, build.device, pads=is_split)

    def forward(self, hidden: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """All tokens are of the first type."""
        types = self.types(torch.zeros_like(batch.input_ids), self.comm)
        made: torch.Tensor = self.norm(hidden + types + self.positions(self._places(batch), self.comm))
        return made

    def _places(self, batch: ForwardBatch) -> torch.Tensor:
        """Of those that are no padding, from the one behind it on; padding has its own."""
        if self.padding is None:
            return batch.positions
        told = (batch.input_ids != self.padding).long()
        counted = told.cumsum(0)
        before = nn.functional.pad(counted, (1, 0))[batch.query_starts[:-1]]
        lengths = batch.query_starts.diff()
        counted = counted - before.repeat_interleave(lengths, output_size=len(counted))
        return counted * told + self.padding

    def pieces(self) -> Iterator[Piece]:
        for part in (self.positions, self.types, self.norm):
            yield from part.pieces()

"""One of two routers that a checkpoint keeps as one: a column an expert, and a row of corrections each."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from runtime.layers.loading import Piece, Source
from runtime.moe.router import Router
from runtime.server.layer_config import MoEConfig


class HalfRouter(Router):
    def __init__(
        self,
        block: str,
        hidden: int,
        moe: MoEConfig,
        dtype: torch.dtype,
        device: torch.device,
        is_second: bool = False,
    ) -> None:
        super().__init__((), hidden, moe, dtype, device)
        self.block, self.is_second = block, is_second

    def pieces(self) -> Iterator[Piece]:
        assert self.correction is not None
        weight = Source(f"{self.block}.gate.weight{'_1' if self.is_second else ''}", view=torch.t)
        yield Piece(self.weight, (weight,))
        row = slice(int(self.is_second), int(self.is_second) + 1)
        both = Source(f"{self.block}.moe_statics.e_score_correction_bias", (row,), torch.flatten)
        yield Piece(self.correction, (both,))

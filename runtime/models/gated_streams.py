"""Several residual streams behind gates: Qwen4's. What goes into a part of a layer, and how it comes back."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from runtime.layers.loading import Piece, Source
from runtime.models.build import Build
from runtime.models.stream_norm import StreamNorm
from runtime.models.stream_way import Way


class GatedStreams(nn.Module):
    """Whole on every rank, and never quantized. The last has no way back."""

    def __init__(self, build: Build, name: str, is_last: bool = False) -> None:
        super().__init__()
        self.norm = StreamNorm(build, f"{name}.hc_norm")
        self.count, width = self.norm.weight.shape
        rank, rows = self.norm.rank, self.count * width
        shapes = {"input_mix_weight_down": (rank, rows), "input_mix_weight_up": (rows, rank)}
        if not is_last:
            shapes["block_inject_weight"] = (self.count, rows)
        self.name, self.matrices = name, nn.ParameterDict()
        for one, shape in shapes.items():
            made = torch.empty(shape, dtype=build.dtype, device=build.device)
            self.matrices[one] = nn.Parameter(made, requires_grad=False)

    def forward(self, streams: torch.Tensor) -> torch.Tensor:
        return self._row(self.norm(streams))

    def collapse(self, streams: torch.Tensor) -> tuple[torch.Tensor, Way]:
        """[T, streams, H] -> [T, H], and the way back."""
        normed = self.norm(streams)
        asked = F.linear(normed.flatten(1), self.matrices["block_inject_weight"]) / self.count
        return self._row(normed), Way(2 * asked.sigmoid())

    def spread(self, answer: torch.Tensor, streams: torch.Tensor, way: Way) -> torch.Tensor:
        return streams + way.post[..., None] * answer[:, None]

    def _row(self, normed: torch.Tensor) -> torch.Tensor:
        low = F.silu(F.linear(normed.flatten(1), self.matrices["input_mix_weight_down"]) / self.count)
        gates = F.linear(low, self.matrices["input_mix_weight_up"]).sigmoid()
        return (gates.view_as(normed) * normed).mean(dim=1)

    def pieces(self) -> Iterator[Piece]:
        yield from self.norm.pieces()
        for one, tensor in self.matrices.items():
            yield Piece(tensor, (Source(f"{self.name}.{one}.weight"),))

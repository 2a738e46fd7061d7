"""How layers are entered whose residual and answers are scaled before they are added: srt/models/zaya.py."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.loading import Piece, Source
from runtime.models.build import Build, RowNorm
from runtime.models.gated_residual import StreamEnd

_SCALED = ("residual", "hidden_states")


class ScaledEntry(nn.Module):
    """The last answer and, but in the first layer, the residual are moved and scaled by each channel, in
    float32, and so they are before the norm of the head."""

    def __init__(self, build: Build, norm: str, scales: str, is_first: bool = False) -> None:
        super().__init__()
        self.norm, self.scales, self.dtype = build.norm_of_rows(norm), scales, build.dtype
        self.names = [f"{of}_{what}" for of in _SCALED[is_first:] for what in ("scale", "bias")]
        for name in self.names:
            one = torch.empty(build.model.hidden_size, dtype=build.dtype, device=build.device)
            self.register_parameter(name, nn.Parameter(one, requires_grad=False))

    def enter(self, hidden: torch.Tensor, residual: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self._scaled("hidden_states", hidden)
        if residual is not None:
            rows = self._scaled("residual", residual).add_(rows)
        return self.norm(rows.to(self.dtype)), rows

    def _scaled(self, of: str, rows: torch.Tensor) -> torch.Tensor:
        scale, bias = (self.get_parameter(f"{of}_{what}") for what in ("scale", "bias"))
        return (rows.float() + bias.float()) * scale.float()

    def leave(self, answer: torch.Tensor) -> torch.Tensor:
        return answer

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.enter(rows, None)[0]

    def add(self, rows: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.enter(rows, residual)[0]

    def pieces(self) -> Iterator[Piece]:
        yield from self.norm.pieces()
        for name in self.names:
            yield Piece(self.get_parameter(name).data, (Source(f"{self.scales}.{name}"),))


def scaled_entry(build: Build, layer_id: int) -> ScaledEntry:
    layer = build.model.layer_name(layer_id)
    return ScaledEntry(build, f"{layer}.input_norm", f"{layer}.res_scale", layer_id == 0)


def last_norm(build: Build) -> RowNorm | ScaledEntry | StreamEnd:
    """Before the head."""
    if build.model.norms == "scaled":
        return ScaledEntry(build, build.model.names.norm, "model.res_scale")
    if build.model.norms == "gated":
        return StreamEnd(build)
    return build.norm_of_rows(build.model.names.norm, whole=build.model.last_norm_whole)

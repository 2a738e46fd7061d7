"""Layers whose residual is in float32, and gated against each of their answers: srt/models/muse_spark.py."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.gated_residual import gated_answer, shares, stream_norm
from runtime.layers.loading import Piece, Source
from runtime.layers.norm import RMSNorm
from runtime.models.build import Build


class GatedResidual(nn.Module):
    """Where attention is entered and left, or what follows it."""

    def __init__(self, build: Build, before: str, after: RMSNorm | None, gate: str) -> None:
        super().__init__()
        model = build.model
        assert model.gate_temperature is not None and model.answer_eps is not None
        self.before, self.after = build.norm(before, model.hidden_size), after
        self.temperature, self.eps, self.name = model.gate_temperature, model.answer_eps, gate
        one = torch.empty(model.hidden_size, dtype=build.dtype, device=build.device)
        self.gate = nn.Parameter(one, requires_grad=False)
        kept = torch.empty(model.hidden_size, dtype=torch.float32, device=build.device)
        self.register_buffer("keeps", kept, persistent=False)
        self.register_buffer("counts", kept.clone(), persistent=False)

    def finalize(self) -> None:
        keeps, counts = shares(self.gate, self.temperature)
        self.get_buffer("keeps").copy_(keeps)
        self.get_buffer("counts").copy_(counts)

    def enter(self, hidden: torch.Tensor, residual: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """The residual already as much as it counts beside what is answered."""
        stream = hidden.float() if residual is None else residual.add_(hidden)
        normed = stream_norm(stream, self.before.weight, self.before.eps)
        return normed, stream.mul_(self.get_buffer("keeps"))

    def leave(self, answer: torch.Tensor) -> torch.Tensor:
        weight = None if self.after is None else self.after.weight
        return gated_answer(answer, weight, self.get_buffer("counts"), self.eps)

    def pieces(self) -> Iterator[Piece]:
        yield from self.before.pieces()
        yield from () if self.after is None else self.after.pieces()
        yield Piece(self.gate, (Source(f"{self.name}.gate"),))


class StreamEnd(nn.Module):
    """Before the head: the residual in the model's dtype, normed."""

    def __init__(self, build: Build) -> None:
        super().__init__()
        model, self.dtype = build.model, build.dtype
        self.norm = build.norm(model.names.norm, model.hidden_size, whole=model.last_norm_whole)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.norm(rows.to(self.dtype))

    def add(self, rows: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self(residual.add_(rows))

    def pieces(self) -> Iterator[Piece]:
        yield from self.norm.pieces()


def gated_attention(build: Build, layer_id: int) -> GatedResidual:
    name = build.model.layer_name(layer_id)
    return GatedResidual(build, f"{name}.input_layernorm", None, f"{name}.post_attention_residual_gate")


def gated_mlp(build: Build, layer_id: int) -> GatedResidual:
    name, size = build.model.layer_name(layer_id), build.model.hidden_size
    after = build.norm(f"{name}.post_feedforward_layernorm", size)
    gate = f"{name}.post_feedforward_residual_gate"
    return GatedResidual(build, f"{name}.pre_feedforward_layernorm", after, gate)

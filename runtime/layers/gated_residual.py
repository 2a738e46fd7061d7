"""A residual in float32, and what is added to it: each channel of either by a gate of its own."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from runtime.layers.norm import weighed_norm
from runtime.layers.opaque import opaque_op

_LEAST = 1e-3


def shares(gate: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """How much of the residual is kept, and how much an answer counts."""
    told = gate.float() / temperature
    counts = told.sigmoid()
    return ((-told).sigmoid() * (1 + counts)).clamp(min=_LEAST).sqrt(), counts


@opaque_op("sgl_tune::stream_norm", mutates_args=())
def stream_norm(stream: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """In the dtype of its weights."""
    return F.rms_norm(stream, stream.shape[-1:], weight.to(stream.dtype), eps).to(weight.dtype)


@stream_norm.register_fake
def _(stream: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.empty_like(stream, dtype=weight.dtype)


@opaque_op("sgl_tune::gated_answer", mutates_args=())
def gated_answer(
    answer: torch.Tensor, weight: torch.Tensor | None, counts: torch.Tensor, eps: float
) -> torch.Tensor:
    """Normed behind its weights, and so much of it, in float32."""
    return weighed_norm(answer, weight, eps).float() * counts


@gated_answer.register_fake
def _(answer: torch.Tensor, weight: torch.Tensor | None, counts: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.empty_like(answer, dtype=torch.float32)

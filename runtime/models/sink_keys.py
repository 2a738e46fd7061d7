"""A key of each KV head that stands for no token and has no value: how much each query wants it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.loading import Piece, Source, length
from runtime.layers.opaque import opaque_op
from runtime.models.build import Build
from runtime.server.layer_config import AttentionConfig


class SinkKeys(nn.Module):
    def __init__(self, build: Build, name: str, heads: slice, config: AttentionConfig) -> None:
        super().__init__()
        self.name, self.heads, self.scale = name, heads, config.scale
        self.whole = (config.num_kv_heads, config.head_dim)
        one = torch.empty(length(heads), config.head_dim, dtype=build.dtype, device=build.device)
        self.keys = nn.Parameter(one, requires_grad=False)

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        return sink_scores(q, self.keys, self.scale)

    def pieces(self) -> Iterator[Piece]:
        """A file may have one more dimension before them."""
        name = f"{self.name}.sink_k"
        plain = Source(name, (self.heads,), shape=self.whole)
        yield Piece(self.keys, (plain, Source(name, (slice(0, 1), self.heads), _only)))


def _only(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.squeeze(0)


@opaque_op("sgl_tune::sink_scores", mutates_args=())
def sink_scores(q: torch.Tensor, keys: torch.Tensor, scale: float) -> torch.Tensor:
    """q [T, heads, D] and keys [kv heads, D] -> [T, heads], in float32."""
    asked = q.unflatten(1, (keys.shape[0], -1))
    return torch.einsum("tkgd,kd->tkg", asked, keys).float().mul_(scale).flatten(1).contiguous()


@sink_scores.register_fake
def _(q: torch.Tensor, keys: torch.Tensor, scale: float) -> torch.Tensor:
    return q.new_empty(q.shape[:2], dtype=torch.float32)

"""A short convolution of what either half of a layer answers, added to it before the residual."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.loading import Piece
from runtime.layers.recurrence import Rows
from runtime.models.build import Build
from runtime.models.recurrent_parts import Convolution
from runtime.server.recurrent import AddedConvolutionsConfig


class AddedConvolution(nn.Module):
    """Of whole rows, on every rank: srt/models/inkling_common/sconv.py."""

    def __init__(self, build: Build, layer_id: int, name: str, place: slice, kernel: int) -> None:
        super().__init__()
        self.layer_id, self.place = layer_id, place
        whole = slice(0, build.model.hidden_size)
        self.convolution = Convolution(build, name, [whole], kernel, opens=False)

    def forward(self, answer: torch.Tensor, batch: ForwardBatch, pool: KVPool) -> torch.Tensor:
        assert pool.states is not None
        state = pool.states.layer(self.layer_id).conv[:, self.place]
        return answer + self.convolution(answer, state, Rows.of(batch))

    def pieces(self) -> Iterator[Piece]:
        return self.convolution.pieces()


def added_convolution(build: Build, layer_id: int, half: str) -> AddedConvolution | None:
    """Of its `attention`, or of its `mlp`, where they have one."""
    added = build.model.recurrent
    if not isinstance(added, AddedConvolutionsConfig):
        return None
    place = added.places(build.comm.size("attn_tp"))[half]
    own = "attn_sconv" if half == "attention" else "mlp_sconv"
    name = f"{build.model.layer_name(layer_id)}.{own}"
    return AddedConvolution(build, layer_id, name, place, added.conv_kernel)

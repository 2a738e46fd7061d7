"""The vocabulary's two tables, split by rows over ranks: token embedding and LM head."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from runtime.forward.comm import Communicator
from runtime.layers.linear import Linear, Part
from runtime.layers.loading import Piece, Source, length, shard
from runtime.layers.norm import RMSNorm, rms_norm
from runtime.layers.opaque import opaque_op
from runtime.layers.quantization import PLAIN, Plain, Scheme
from runtime.server.config import ModelConfig

VOCAB_PADDING = 64


def padded_vocab(vocab_size: int, padding: int = VOCAB_PADDING) -> int:
    return -(-vocab_size // padding) * padding


class VocabTable(nn.Module):
    """This rank's rows of a [vocab, hidden] table; the vocabulary is padded to give every rank as many."""

    def __init__(
        self,
        name: str,
        model: ModelConfig,
        comm: Communicator,
        group: str,
        dtype: torch.dtype,
        device: torch.device,
        scheme: Scheme = PLAIN,
        pads: bool = True,
        padding: int = VOCAB_PADDING,
    ) -> None:
        """With a `scheme` of its own only its sizes count: of a prediction. Of no `group`: whole."""
        super().__init__()
        self.name = name
        self.group = group
        self.bias: nn.Parameter | None = None  # of a head
        self.is_normed = False  # each column, over the whole vocabulary, is made one long when it is read
        self.has_unit_rows = False  # or each row is
        self.multiplier = model.multipliers.embedding
        ranks, rank = (1, 0) if not group else (comm.size(group), comm.rank(group))
        count = padded_vocab(model.vocab_size, padding) if pads else model.vocab_size
        self.rows = shard(count, ranks, rank, "the padded vocabulary")
        width = model.hidden_size if model.tables is None else model.tables.width
        shape = (length(self.rows), width)
        self.stored: Linear | None = None
        if not isinstance(scheme, Plain):
            part = Part(name, self.rows)
            self.stored = Linear([part], slice(0, shape[1]), dtype, device, scheme=scheme, rows_over=ranks)
            self.weight = torch.empty((), dtype=dtype, device="meta").expand(shape)
            return
        self.weight = nn.Parameter(torch.empty(shape, dtype=dtype, device=device), requires_grad=False)
        self.real = slice(min(self.rows.start, model.vocab_size), min(self.rows.stop, model.vocab_size))
        self.weight[length(self.real) :].zero_()

    def take_bias(self) -> None:
        self.bias = nn.Parameter(self.weight.new_zeros(length(self.rows)), requires_grad=False)

    def pieces(self) -> list[Piece]:
        target, name = self.weight[: length(self.real)], f"{self.name}.weight"
        source = Source(name, (self.real,), F.normalize if self.has_unit_rows else None)
        if self.is_normed:
            source = Source(name, view=self._normed)
        found = [Piece(target, (source,))]
        if self.bias is not None:
            own = Source(f"{self.name}.bias", (self.real,))
            found.append(Piece(self.bias[: length(self.real)], (own,)))
        return found

    def _normed(self, whole: torch.Tensor) -> torch.Tensor:
        return F.normalize(whole, dim=0, eps=1e-7)[self.real]


class TokenEmbedding(VocabTable):
    norm: torch.Tensor | None = None
    eps = 0.0

    def __init__(self, *given: Any, own_norm: RMSNorm | None = None, **told: Any) -> None:
        super().__init__(*given, **told)
        self.own_norm = own_norm

    def take_norm(self, eps: float) -> None:
        """Without weights, of what is found."""
        self.norm = torch.ones_like(self.weight[0])
        self.eps = eps

    def forward(self, ids: torch.Tensor, comm: Communicator) -> torch.Tensor:
        found = self._found(ids, comm)
        if self.norm is not None:
            found = rms_norm(found, self.norm, self.eps)
        if self.own_norm is not None:
            found = self.own_norm(found)
        return found if self.multiplier == 1 else found.mul_(self.multiplier)

    def pieces(self) -> list[Piece]:
        return [*super().pieces(), *(self.own_norm.pieces() if self.own_norm is not None else ())]

    def _found(self, ids: torch.Tensor, comm: Communicator) -> torch.Tensor:
        if not self.group or comm.size(self.group) == 1:
            return F.embedding(ids, self.weight)
        elsewhere = (ids < self.rows.start) | (ids >= self.rows.stop)
        local = (ids - self.rows.start).masked_fill_(elsewhere, 0)
        out = F.embedding(local, self.weight).masked_fill_(elsewhere.unsqueeze(-1), 0)
        return comm.all_reduce(out, self.group)


@opaque_op("sgl_tune::multiplied_in_fp32", mutates_args=())
def multiplied_in_fp32(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """[T, K] and [N, K] of one dtype -> [T, N] float32, without a copy of either on a GPU."""
    if rows.is_cuda and rows.dtype is not torch.float32:
        answer = torch.mm(rows, weight.T, out_dtype=torch.float32)
    else:
        answer = F.linear(rows.float(), weight.float())
    return answer if bias is None else answer.add_(bias)


@multiplied_in_fp32.register_fake
def _(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return rows.new_empty(rows.shape[0], weight.shape[0], dtype=torch.float32)

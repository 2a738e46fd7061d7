"""The two tables of the vocabulary, token embedding and LM head, split by rows over ranks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from runtime.forward.comm import Communicator
from runtime.server.config import ModelConfig
from runtime.server.layer_config import share

VOCAB_PADDING = 64


def padded_vocab(vocab_size: int) -> int:
    return -(-vocab_size // VOCAB_PADDING) * VOCAB_PADDING


class VocabTable(nn.Module):
    """This rank's rows of a [vocab, hidden] table, padded so that every rank has equally many rows.

    Without a `group` the table is whole on every rank, and not padded.
    """

    def __init__(
        self,
        model: ModelConfig,
        comm: Communicator,
        group: str,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.group = group
        ranks, rank = (comm.size(group), comm.rank(group)) if group else (1, 0)
        count = padded_vocab(model.vocabulary.size) if group else model.vocabulary.size
        rows = share(count, ranks, "the padded vocabulary")
        self.first, self.end = rank * rows, (rank + 1) * rows
        shape = (rows, model.hidden_size)
        self.weight = nn.Parameter(torch.empty(shape, dtype=dtype, device=device), requires_grad=False)


class TokenEmbedding(VocabTable):
    def forward(self, ids: torch.Tensor, comm: Communicator) -> torch.Tensor:
        if not self.group or comm.size(self.group) == 1:
            return F.embedding(ids, self.weight)
        elsewhere = (ids < self.first) | (ids >= self.end)
        local = (ids - self.first).masked_fill_(elsewhere, 0)
        out = F.embedding(local, self.weight).masked_fill_(elsewhere.unsqueeze(-1), 0)
        return comm.all_reduce(out, self.group)

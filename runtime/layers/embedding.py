"""The two tables of the vocabulary, token embedding and LM head, split by rows over ranks."""

import torch
import torch.nn.functional as F
from torch import nn

from runtime.forward.comm import Communicator
from runtime.layers.loading import length, shard
from runtime.server.config import ModelConfig

VOCAB_PADDING = 64


def padded_vocab(vocab_size: int) -> int:
    return -(-vocab_size // VOCAB_PADDING) * VOCAB_PADDING


class VocabTable(nn.Module):
    """This rank's rows of a [vocab, hidden] table, padded so that every rank has equally many rows.

    Without a `group` the table is whole on every rank, and not padded.
    """

    def __init__(
        self,
        name: str,
        model: ModelConfig,
        comm: Communicator,
        group: str,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.name, self.group, self.multiplier = name, group, model.vocabulary.multiplier
        ranks, rank = (comm.size(group), comm.rank(group)) if group else (1, 0)
        count = padded_vocab(model.vocabulary.size) if group else model.vocabulary.size
        self.rows = shard(count, ranks, rank, "the padded vocabulary")
        shape = (length(self.rows), model.hidden_size)
        self.weight = nn.Parameter(torch.empty(shape, dtype=dtype, device=device), requires_grad=False)
        self.real = slice(
            min(self.rows.start, model.vocabulary.size), min(self.rows.stop, model.vocabulary.size)
        )
        self.weight[length(self.real) :].zero_()


class TokenEmbedding(VocabTable):
    def forward(self, ids: torch.Tensor, comm: Communicator) -> torch.Tensor:
        found = self._found(ids, comm)
        return found if self.multiplier == 1 else found.mul_(self.multiplier)

    def _found(self, ids: torch.Tensor, comm: Communicator) -> torch.Tensor:
        if not self.group or comm.size(self.group) == 1:
            return F.embedding(ids, self.weight)
        elsewhere = (ids < self.rows.start) | (ids >= self.rows.stop)
        local = (ids - self.rows.start).masked_fill_(elsewhere, 0)
        out = F.embedding(local, self.weight).masked_fill_(elsewhere.unsqueeze(-1), 0)
        return comm.all_reduce(out, self.group)

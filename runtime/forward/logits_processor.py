"""From hidden states to logits: the LM head, its gathers over ranks, and how autotuning skips them.

Under DP attention the head works on all ranks' rows: a dummy batch of 2048 rows per rank becomes 16384 rows
of logits, twice: gathered, then copied. Autotuning needs no logits: see `autotune_dummy_run_mode`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F

from runtime.forward.batch import ForwardBatch, ForwardMode
from runtime.forward.comm import Communicator
from runtime.forward.dp_attention import gather_rows, own_rows
from runtime.server.config import Vocabulary
from runtime.server.parallel import HeadOver


@dataclass(frozen=True, slots=True, eq=False)
class LogitsOutput:
    next_token_logits: torch.Tensor | None = None  # [rows, vocab] fp32
    hidden_states: torch.Tensor | None = None


# None outside a dummy run; inside one, whether it runs the LM head.
_run_lm_head: ContextVar[bool | None] = ContextVar("autotune_run_lm_head", default=None)


@contextmanager
def autotune_dummy_run_mode(run_lm_head: bool = False) -> Iterator[None]:
    """In forwards inside, nobody reads the logits; `run_lm_head` runs the head, to show what it took."""
    token = _run_lm_head.set(run_lm_head)
    try:
        yield
    finally:
        _run_lm_head.reset(token)


def in_autotune_dummy_run() -> bool:
    return _run_lm_head.get() is not None


class VocabHead(Protocol):
    """A matrix [vocab, hidden] whose rows are divided among the ranks of `group`."""

    group: str

    @property
    def weight(self) -> torch.Tensor: ...


class LogitsProcessor:
    """Computes logits. `over` names who shares the head: all ranks, or a group's attention-TP ranks."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        comm: Communicator,
        head: VocabHead,
        keep_hidden_states: bool = False,
        over: HeadOver = "all ranks",
    ) -> None:
        self.vocabulary, self.comm, self.head = vocabulary, comm, head
        self.keep_hidden_states = keep_hidden_states
        self.gathers_dp_rows = over != "a group" and comm.size("attn_dp") > 1
        # A head that every rank or group has whole is gathered too, and all but the first are then cut off.
        self.group = "attn_tp" if over == "a group" else "tp"
        self.shards = comm.size(self.group)

    def forward(self, hidden: torch.Tensor, batch: ForwardBatch) -> LogitsOutput:
        if _run_lm_head.get() is False:
            return LogitsOutput()
        kept = hidden if self.keep_hidden_states else None
        return LogitsOutput(self._logits(_pruned(hidden, batch)), kept)

    def _logits(self, rows: torch.Tensor) -> torch.Tensor:
        gathered = gather_rows(rows, self.comm) if self.gathers_dp_rows else rows
        weight = self.head.weight
        logits = F.linear(gathered.to(weight.dtype), weight)
        logits = self._gather_vocab(logits)
        if self.gathers_dp_rows:
            logits = own_rows(logits, rows.shape[0], self.comm)
        return logits[:, : self.vocabulary.size].float()

    def _gather_vocab(self, shard: torch.Tensor) -> torch.Tensor:
        """Gather vocabulary shards [rows, vocab / n] one after the other, and copy to [rows, vocab]."""
        size = self.shards
        if size == 1:
            return shard
        gathered = shard.new_empty(size * shard.shape[0], shard.shape[1])
        self.comm.all_gather_into(gathered, shard, self.group)
        return gathered.view(size, *shard.shape).movedim(0, 1).flatten(1)


def _pruned(hidden: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
    """Return the rows that the head sees: in an extend, only the last of each request."""
    if batch.mode in (ForwardMode.EXTEND, ForwardMode.DRAFT_EXTEND):
        return hidden[batch.query_starts[1:] - 1]
    return hidden

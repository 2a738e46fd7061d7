"""From hidden states to logits: the LM head, its gathers over ranks, and how autotuning skips them.

Under DP attention the head works on all ranks' rows: a dummy batch of 2048 rows per rank becomes 16384 rows
of logits, twice: gathered, then copied. Autotuning needs no logits: see `autotune_dummy_run_mode`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F

from runtime.forward.batch import ForwardBatch, ForwardMode, LogitsMode
from runtime.forward.comm import Communicator
from runtime.forward.dp_attention import gather_rows, own_rows
from runtime.server.config import Vocabulary
from runtime.server.parallel import HeadOver


class DummyRunLeak(RuntimeError):
    """An autotune dummy run met a graph capture or a profiling run, which need logits."""


@dataclass(frozen=True, slots=True, eq=False)
class LogitsOutput:
    next_token_logits: torch.Tensor | None = None  # [rows, vocab] fp32
    hidden_states: torch.Tensor | None = None
    full_logits: torch.Tensor | None = None  # diffusion LLM: every token's
    item_logprobs: torch.Tensor | None = None  # multi-item scoring: of the rows asked for


# None outside a dummy run; inside one, whether it runs the LM head.
_run_lm_head: ContextVar[bool | None] = ContextVar("autotune_run_lm_head", default=None)
_wanted_by: ContextVar[str | None] = ContextVar("logits_wanted_by", default=None)


@contextmanager
def autotune_dummy_run_mode(run_lm_head: bool = False) -> Iterator[None]:
    """In forwards inside, nobody reads the logits; `run_lm_head` still runs the head, to tune a draft's."""
    if (what := _wanted_by.get()) is not None:
        raise DummyRunLeak(f"an autotune dummy run cannot start inside {what}: its logits are wanted")
    token = _run_lm_head.set(run_lm_head)
    try:
        yield
    finally:
        _run_lm_head.reset(token)


@contextmanager
def logits_wanted(what: str) -> Iterator[None]:
    """Refuse autotune dummy runs inside: graph capture and profiling use dummy batches, but need logits."""
    _refuse_dummy_run(what)
    token = _wanted_by.set(what)
    try:
        yield
    finally:
        _wanted_by.reset(token)


def in_autotune_dummy_run() -> bool:
    return _run_lm_head.get() is not None


def _refuse_dummy_run(what: str) -> None:
    if in_autotune_dummy_run():
        raise DummyRunLeak(
            f"{what} inside autotune_dummy_run_mode would lose its logits: leave the mode first"
        )


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
        if _skips_head(batch):
            return LogitsOutput()
        if batch.logits_mode is LogitsMode.INDICES:
            return self._score_items(hidden, batch)
        if batch.logits_mode is LogitsMode.ALL and batch.mode is ForwardMode.EXTEND:
            return LogitsOutput(full_logits=self._logits(hidden, batch))
        kept = hidden if self.keep_hidden_states else None
        return LogitsOutput(self._logits(_pruned(hidden, batch), batch), kept)

    def _score_items(self, hidden: torch.Tensor, batch: ForwardBatch) -> LogitsOutput:
        """Score many items after one query: return log-probabilities of the rows before each delimiter."""
        assert batch.logits_indices is not None
        logits = self._logits(hidden[batch.logits_indices], batch)
        return LogitsOutput(item_logprobs=logits.log_softmax(dim=-1))

    def _logits(self, rows: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        counts = self._head_counts(rows.shape[0], batch)
        gathered = gather_rows(rows, counts, self.comm) if self.gathers_dp_rows else rows
        weight = self.head.weight
        logits = F.linear(gathered.to(weight.dtype), weight)
        logits = self._gather_vocab(logits)
        if self.gathers_dp_rows:
            logits = own_rows(logits, counts, rows.shape[0], self.comm)
        logits, cap = logits[:, : self.vocabulary.size].float(), self.vocabulary.logit_cap
        return logits if cap is None else logits.div_(cap).tanh_().mul_(cap)

    def _head_counts(self, rows: int, batch: ForwardBatch) -> list[int]:
        if not self.gathers_dp_rows:
            return [rows]
        assert batch.dp is not None and batch.dp.logprob_num_tokens_cpu is not None
        return batch.dp.logprob_num_tokens_cpu

    def _gather_vocab(self, shard: torch.Tensor) -> torch.Tensor:
        """Gather vocabulary shards [rows, vocab / n] one after the other, and copy to [rows, vocab]."""
        size = self.shards
        if size == 1:
            return shard
        gathered = shard.new_empty(size * shard.shape[0], shard.shape[1])
        self.comm.all_gather_into(gathered, shard, self.group)
        return gathered.view(size, *shard.shape).movedim(0, 1).flatten(1)


def _skips_head(batch: ForwardBatch) -> bool:
    if not in_autotune_dummy_run():
        return False
    if not batch.dummy:
        _refuse_dummy_run("a forward of real requests")
    if batch.input_ids.is_cuda and torch.cuda.is_current_stream_capturing():
        _refuse_dummy_run("graph capture")
    return _run_lm_head.get() is False


def _pruned(hidden: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
    """Return the rows that the head sees: in an extend, only the last of each request."""
    if batch.logits_mode is LogitsMode.LAST and batch.mode in (ForwardMode.EXTEND, ForwardMode.DRAFT_EXTEND):
        return hidden[batch.query_starts[1:] - 1]
    return hidden

"""Asks a server what it tunes: the starts of the ranks whose calls may differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from runtime.record.record import Record
from sgl_tune.asking.asking import Answers, Listener
from sgl_tune.asking.question import Question
from sgl_tune.errors import CheckFailed, UsageError

MOST_RANKS = 1024  # of one server


def records_of(question: Question, answers: Answers, say: Listener) -> list[Record]:
    """The first rank, then the first of each later stage, then the last of each stage. Where the first and
    the last of a stage ask for other entries, all ranks of it are started."""
    records = {0: _one(question, answers, say, 0)}
    tp, pp = (_size(records[0], name) for name in ("tp_size", "pp_size"))
    if tp * pp > MOST_RANKS:
        raise CheckFailed(f"this server has {tp * pp} ranks, and a warm asks at most {MOST_RANKS}")
    for rank in _ends(tp, pp):
        if rank not in records:
            records[rank] = _one(question, answers, say, rank)
    for stage in range(pp):
        first, last = stage * tp, stage * tp + tp - 1
        if _asks(records[first]) != _asks(records[last]):
            for rank in range(first + 1, last):
                records[rank] = _one(question, answers, say, rank)
    return [records[rank] for rank in sorted(records)]


def _ends(tp: int, pp: int) -> Iterator[int]:
    for stage in range(pp):
        yield from (stage * tp, stage * tp + tp - 1)


def _size(record: Record, name: str) -> int:
    size = record.arguments.get(name)
    return size if isinstance(size, int) and size > 0 else 1


def _asks(record: Record) -> frozenset[str]:
    return frozenset(key for call in record.calls for key in call.keys)


def _one(question: Question, answers: Answers, say: Listener, rank: int) -> Record:
    record = answers.answer(replace(question, rank=rank), say)
    ending = record.ending
    if ending.how == "refused":
        _usage, _, said = (ending.text or "").strip().rpartition(": error: ")  # argparse prints all flags
        raise UsageError(f"SGLang refuses this command: {said[-600:]}")
    if ending.how != "ready" and not any(call.mode == "tune" for call in record.calls):
        where = f"in {ending.phase}: " if ending.phase else ""
        text = (ending.text or "").strip().splitlines() or ["it did not say why"]
        raise CheckFailed(
            f"this server does not start: {where}{ending.type or ending.how}: {text[0][:600]}",
            "`sgl-tune mem-report` with the same words shows the start, and what would help",
        )
    return record

"""One pass over many things by copies of this process, as many as there are cores to run on.

A copy sends its answers through a pipe and is gone: it runs no exit handler, says nothing, and ends soon
if whoever made it has ended. What a copy did not answer, for whatever reason, is done here.
"""

from __future__ import annotations

import marshal
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from sgl_tune.processes.threads import is_alone

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Work = Callable[[Sequence[Item]], Iterable[Answer]]
_MOST = 8
_WORTH_IT = 250  # a copy costs as much as a hundred files: it writes to most pages that it shares
_LATE = 0.1  # of a share: a copy begins later than who makes it, and has to tell its answers
_AT_ONCE = 1 << 20
_PROTOCOL = 5
_CORE = 36  # its place behind the name in /proc/PID/stat


class Plainly(NamedTuple):
    """What a copy tells of an answer to an item, in what JSON has and tuples, and what is heard of that: the
    answer again. Sooner said than objects, for which modules are imported first."""

    told: Callable[[Any, Any], Any]
    heard: Callable[[Any, Any], Any]


def in_copies(
    work: Work[Item, Answer],
    items: Sequence[Item],
    files: int,
    plainly: Plainly | None = None,
) -> list[Answer]:
    """An answer for each item, in their order; `work` answers one alike whatever others it is given. `files`:
    how many are read for all of them, which tells whether a copy is worth its making."""
    copies = min(_cores(), _MOST, files // _WORTH_IT, len(items)) - 1
    if copies < 1 or not is_alone():
        return list(work(items))
    here = int(len(items) / (copies + 1 - _LATE))
    share = -(-(len(items) - here) // copies)
    with ExitStack() as running:
        others = [items[at : at + share] for at in range(here, len(items), share)]
        made = [running.enter_context(_Copy(work, given, plainly)) for given in others]
        answers = list(work(items[:here]))
        for copy, given in zip(made, others, strict=True):
            found = copy.answers()
            answers += work(given) if found is None else found
    return answers


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


class _Copy:
    def __init__(self, work: Work[Any, Any], items: Sequence[Any], plainly: Plainly | None) -> None:
        self._items, self._plainly = items, plainly
        self._pipe, writes = os.pipe()
        self._process: int | None = None
        with suppress(OSError):  # there may be no room for one
            here = os.getpid()
            self._process = os.fork()
            if self._process == 0:
                _answer(work, items, plainly, writes, here)
        os.close(writes)

    def answers(self) -> Iterable[Any] | None:
        """What it told, if it could."""
        raw = b"".join(iter(lambda: os.read(self._pipe, _AT_ONCE), b""))
        ended_well = self._process and os.waitpid(self._process, 0)[1] == 0
        self._process = None
        if not ended_well:
            return None
        if self._plainly:
            return map(self._plainly.heard, self._items, marshal.loads(raw))
        from _pickle import loads  # `pickle` defines all of it in Python first, which takes longer

        found: list[Any] = loads(raw)
        return found

    def __enter__(self) -> _Copy:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)
        if self._process:
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)


def _answer(
    work: Work[Any, Any], items: Sequence[Any], plainly: Plainly | None, pipe: int, maker: int
) -> NoReturn:
    code = 1
    try:
        _leave_core(maker)
        found = []
        for item, answer in zip(items, work(items), strict=True):
            found.append(plainly.told(item, answer) if plainly else answer)
            if os.getppid() != maker:
                break
        else:
            raw = memoryview(_packed(found, plainly))
            while raw:
                raw = raw[os.write(pipe, raw) :]
            code = 0
    finally:
        os._exit(code)  # an exception too ends here: it comes again where the work is done instead


def _leave_core(maker: int) -> None:
    """Its maker works on there, and the kernel may leave both on it for some milliseconds."""
    with suppress(OSError, AttributeError, ValueError, IndexError):
        told = Path(f"/proc/{maker}/stat").read_text(errors="replace")
        core = int(told.rpartition(")")[2].split()[_CORE])
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, allowed - {core})
        os.sched_setaffinity(0, allowed)


def _packed(found: list[Any], plainly: Plainly | None) -> bytes:
    if plainly:
        return marshal.dumps(found)
    from _pickle import dumps

    return dumps(found, _PROTOCOL)

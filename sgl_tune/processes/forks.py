"""One pass over many things by copies of this process, as many as there are cores to run on.

A copy sends its answers through a pipe and is gone: it runs no exit handler, says nothing, and ends soon
if whoever made it has ended. What a copy did not answer, for whatever reason, is done here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NoReturn, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Work = Callable[[Sequence[Item]], Iterable[Answer]]
_MOST = 8
_WORTH_IT = 250  # a copy costs as much as a hundred files: it writes to most pages that it shares
_LATE = 0.1  # of a share: a copy begins later than who makes it, and has to tell its answers
_AT_ONCE = 1 << 20
_PROTOCOL = 5


def _as_it_is(item: Any, answer: Any) -> Any:
    return answer


def in_copies(
    work: Work[Item, Answer],
    items: Sequence[Item],
    files: int,
    told: Callable[[Item, Answer], Any] = _as_it_is,
    heard: Callable[[Item, Any], Answer] = _as_it_is,
) -> list[Answer]:
    """An answer for each item, in their order; `work` answers one alike whatever others it is given. `files`:
    how many are read for all of them, which tells whether a copy is worth its making. A copy sends what is
    `told` of an answer to an item, and what is `heard` of that is the answer again."""
    copies = min(_cores(), _MOST, files // _WORTH_IT, len(items)) - 1
    if copies < 1 or threading.active_count() > 1:
        return list(work(items))
    here = int(len(items) / (copies + 1 - _LATE))
    share = -(-(len(items) - here) // copies)
    with ExitStack() as running:
        others = [items[at : at + share] for at in range(here, len(items), share)]
        made = [running.enter_context(_Copy(work, given, told)) for given in others]
        answers = list(work(items[:here]))
        for copy, given in zip(made, others, strict=True):
            found = copy.answers()
            answers += work(given) if found is None else map(heard, given, found)
    return answers


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


class _Copy:
    def __init__(self, work: Work[Any, Any], items: Sequence[Any], told: Callable[[Any, Any], Any]) -> None:
        self._pipe, writes = os.pipe()
        self._process: int | None = None
        with suppress(OSError):  # there may be no room for one
            here = os.getpid()
            self._process = os.fork()
            if self._process == 0:
                _answer(work, items, told, writes, here)
        os.close(writes)

    def answers(self) -> list[Any] | None:
        """What it told, if it could."""
        from _pickle import loads  # `pickle` defines all of it in Python first, which takes longer

        raw = b"".join(iter(lambda: os.read(self._pipe, _AT_ONCE), b""))
        if self._process and os.waitpid(self._process, 0)[1] == 0:
            self._process = None
            found: list[Any] = loads(raw)
            return found
        self._process = None
        return None

    def __enter__(self) -> _Copy:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)
        if self._process:
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)


def _answer(
    work: Work[Any, Any], items: Sequence[Any], told: Callable[[Any, Any], Any], pipe: int, maker: int
) -> NoReturn:
    code = 1
    try:
        from _pickle import dumps

        found = []
        for item, answer in zip(items, work(items), strict=True):
            found.append(told(item, answer))
            if os.getppid() != maker:
                break
        else:
            raw = memoryview(dumps(found, _PROTOCOL))
            while raw:
                raw = raw[os.write(pipe, raw) :]
            code = 0
    finally:
        os._exit(code)  # an exception too ends here: it comes again where the work is done instead

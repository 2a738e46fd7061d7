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
from typing import Any, Generic, NoReturn, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Work = Callable[[Sequence[Item]], Iterable[Answer]]
_MOST = 8
_WORTH_IT = 250  # a copy costs as much as a hundred files: it writes to most pages that it shares
_AT_ONCE = 1 << 20


def in_copies(work: Work[Item, Answer], items: Sequence[Item], files: int) -> list[Answer]:
    """An answer for each item, in their order; `work` answers one alike whatever others it is given. `files`:
    how many are read for all of them, which tells whether a copy is worth its making."""
    copies = min(_cores(), _MOST, files // _WORTH_IT, len(items)) - 1
    if copies < 1 or threading.active_count() > 1:
        return list(work(items))
    share = -(-len(items) // (copies + 1))
    with ExitStack() as running:
        others = [items[at : at + share] for at in range(share, len(items), share)]
        made = [running.enter_context(_Copy(work, given)) for given in others]
        answers = list(work(items[:share]))
        for copy in made:
            answers += copy.answers()
    return answers


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


class _Copy(Generic[Item, Answer]):
    def __init__(self, work: Work[Item, Answer], items: Sequence[Item]) -> None:
        self._work, self._items = work, items
        self._pipe, writes = os.pipe()
        self._process: int | None = None
        with suppress(OSError):  # there may be no room for one
            here = os.getpid()
            self._process = os.fork()
            if self._process == 0:
                _answer(work, items, writes, here)
        os.close(writes)

    def answers(self) -> list[Answer]:
        import pickle

        raw = b"".join(iter(lambda: os.read(self._pipe, _AT_ONCE), b""))
        if self._process and os.waitpid(self._process, 0)[1] == 0:
            self._process = None
            found: list[Answer] = pickle.loads(raw)
            return found
        self._process = None
        return list(self._work(self._items))

    def __enter__(self) -> _Copy[Item, Answer]:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)
        if self._process:
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)


def _answer(work: Work[Any, Any], items: Sequence[Any], pipe: int, maker: int) -> NoReturn:
    code = 1
    try:
        import pickle

        found = []
        for answer in work(items):
            found.append(answer)
            if os.getppid() != maker:
                break
        else:
            raw = memoryview(pickle.dumps(found, pickle.HIGHEST_PROTOCOL))
            while raw:
                raw = raw[os.write(pipe, raw) :]
            code = 0
    finally:
        os._exit(code)  # an exception too ends here: it comes again where the work is done instead

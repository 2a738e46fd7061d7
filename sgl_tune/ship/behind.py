"""Work done in a thread of its own, in the order in which it is given: the system's calls are most of it, and
let the interpreter go on meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_DEPTH = 32
Job = Callable[[], object]


class Behind:
    """After a failure nothing more is done; who gives or waits next hears of it."""

    def __init__(self) -> None:
        self._given: queue.Queue[Job | None] = queue.Queue(_DEPTH)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def do(self, job: Job) -> None:
        self._told()
        self._given.put(job)

    def wait(self) -> None:
        """Until all that was given is done."""
        self._given.join()
        self._told()

    def end(self, failure: BaseException | None) -> None:
        """With a failure, what waits stays undone."""
        self._failure = self._failure or failure
        self._given.put(None)
        self._thread.join()

    def _told(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while (job := self._given.get()) is not None:
            if self._failure is None:
                try:
                    job()
                except BaseException as error:
                    self._failure = error
            self._given.task_done()


@contextmanager
def behind() -> Iterator[Behind]:
    """All that was given is done at the end, but for an exception's."""
    work, failure = Behind(), None
    try:
        yield work
        work.wait()
    except BaseException as error:
        failure = error
        raise
    finally:
        work.end(failure)

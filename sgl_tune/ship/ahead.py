"""Work on bytes in a thread of its own: compressors and hashes let the interpreter go on meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_DEPTH = 8  # pieces of a megabyte at most
_PATIENCE = 0.1


@contextmanager
def ahead(pieces: Iterator[bytes]) -> Iterator[Iterator[bytes]]:
    """The same pieces, made before they are asked for; what goes wrong there is raised here."""
    made: queue.Queue[bytes | BaseException | None] = queue.Queue(_DEPTH)
    ended = threading.Event()

    def hand_over(piece: bytes | BaseException | None) -> bool:
        while not ended.is_set():
            try:
                made.put(piece, timeout=_PATIENCE)
                return True
            except queue.Full:
                continue
        return False

    def make() -> None:
        try:
            for piece in pieces:
                if not hand_over(piece):
                    return
            hand_over(None)
        except BaseException as error:
            hand_over(error)

    def taken() -> Iterator[bytes]:
        while (piece := made.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        ended.set()
        thread.join()


@contextmanager
def behind(take: Callable[[bytes], object]) -> Iterator[Callable[[bytes], None]]:
    """A function that hands pieces over to `take`, which works on them later, in their order. When the block
    ends, all are taken."""
    given: queue.Queue[bytes | None] = queue.Queue(_DEPTH)
    failed: list[BaseException] = []
    ended = threading.Event()

    def work() -> None:
        try:
            while not ended.is_set() and (piece := given.get()) is not None:
                take(piece)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def give(piece: bytes | None) -> None:
        while not failed:
            try:
                given.put(piece, timeout=_PATIENCE)
                return
            except queue.Full:
                continue
        raise failed[0]

    try:
        yield give
        give(None)
        thread.join()
        if failed:
            raise failed[0]
    except BaseException:
        ended.set()
        while thread.is_alive():
            try:
                given.put(None, timeout=_PATIENCE)
            except queue.Full:
                continue
            thread.join(_PATIENCE)
        raise

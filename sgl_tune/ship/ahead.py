"""Pieces of bytes made in a thread of their own: decompressors let the interpreter go on meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
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

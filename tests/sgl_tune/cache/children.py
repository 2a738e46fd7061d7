"""Run a piece of a test in a forked child: to be killed, to lose its rights, or to race with others."""

import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sgl_tune.cache.transaction import locked


def start_child(work: Callable[[], Any]) -> tuple[int, int]:
    """(process id, pipe that its outcome comes through)"""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    try:
        outcome = (True, work())
    except BaseException as error:
        outcome = (False, error)
    with os.fdopen(writer, "wb") as stream:
        pickle.dump(outcome, stream)
    os._exit(0)


def finish_child(child: int, reader: int) -> Any:
    """What the child returned or raised; None if it was killed first."""
    with os.fdopen(reader, "rb") as stream:
        raw = stream.read()
    os.waitpid(child, 0)
    if not raw:
        return None
    worked, value = pickle.loads(raw)
    if not worked:
        raise value
    return value


def in_child(work: Callable[[], Any]) -> Any:
    return finish_child(*start_child(work))


def hearing(hook: Callable[[str, tuple[Any, ...]], object], work: Callable[[], Any]) -> Callable[[], Any]:
    """The work of a child in which `hook` hears of each audited event, such as an open or a rename."""

    def heard() -> Any:
        sys.addaudithook(hook)
        return work()

    return heard


def as_nobody(folder: Path, work: Callable[[], Any]) -> Any:
    """Do it as a user without rights, who may come to the folder."""
    for place in (folder, *folder.parents):
        if place.is_relative_to("/tmp") and place.stat().st_mode & 0o005 != 0o005:
            place.chmod(0o755)

    def without_rights() -> Any:
        os.setuid(65534)
        return work()

    return in_child(without_rights)


def start_holder(folder: Path, ready: Path, then: Callable[[], Any]) -> tuple[int, int]:
    """A child that holds the lock of a folder by now, makes `ready`, and then does this."""

    def hold() -> None:
        with locked(folder):
            ready.touch()
            then()

    child = start_child(hold)
    while not ready.exists():
        time.sleep(0.01)
    return child


def kill_once(seen: Callable[[], bool], work: Callable[[], Any]) -> Any:
    """... or let it finish, where it is sooner."""
    child, reader = start_child(work)
    while not seen() and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(0)
    os.kill(child, signal.SIGKILL)
    return finish_child(child, reader)


def kill_after(seconds: float, work: Callable[[], Any]) -> Any:
    child, reader = start_child(work)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return finish_child(child, reader)

"""Children of a start that compile for real, while the start itself goes on as if they had.

At each place where a start compiles, it forks. The child compiles with the real tools, into the stores that
`begin` was given, and ends. So a child has exactly the source, types and options of the start, and there are
as many at a time as were asked for.
"""

import json
import os
import select
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.ghost.inside import stream
from runtime.ghost.inside.stream import say

_LONGEST = 16_000
_OURS = ("LD_PRELOAD", "LD_LIBRARY_PATH")  # the ghost's libraries: a compiler needs none of them


@dataclass(frozen=True)
class _Child:
    pid: int
    store: str
    name: str


_variables: dict[str, str] | None = None
_jobs = 1
_early: list[tuple[str, str, Callable[[], Any]]] = []
_running: dict[int, _Child] = {}
_last: list[Callable[[], Any]] = []
_is_child, _told = False, -1


def begin(variables: Mapping[str, str], jobs: int) -> None:
    """Compile aside from now on: with these variables, in at most `jobs` processes."""
    global _variables, _jobs
    _variables, _jobs = dict(variables), jobs
    for early in _early:
        compile_aside(*early)


def in_child() -> bool:
    """Whether this process compiles for real."""
    return _is_child


def compile_aside(store: str, name: str, work: Callable[[], Any]) -> None:
    """Do `work` in a child. What is compiled while the server is imported waits for the start."""
    if _variables is None:
        _early.append((store, name, work))
    elif fork(store, name):
        end(work)


def fork(store: str, name: str) -> bool:
    """Return True in a new child that compiles for real and has to call `end`; wait before if as many as
    allowed are at work. Outside a start that bakes, and in a child, return False."""
    if _variables is None or _is_child:
        return False
    while len(_running) >= _jobs:
        _reap()
    ours, theirs = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        _begin_child(theirs)
        return True
    os.close(theirs)
    _running[ours] = _Child(pid, store, name)
    return False


def variable(name: str) -> str:
    """Return where a store is, by its variable; "" if the start was given no such variable."""
    return (_variables or {}).get(name, "")


def at_end(work: Callable[[], Any]) -> None:
    """Call this when the start has ended, to compile what it left."""
    _last.append(work)


def finish() -> None:
    """Do what was left for the end, and wait for all children."""
    for work in _last if not _is_child else ():
        work()
    while _running:
        _reap()


def _begin_child(told: int) -> None:
    global _is_child, _told
    _is_child, _told = True, told
    stream.close()  # a long line of the start and one of a child could mix
    _running.clear()
    for name in _OURS:
        os.environ.pop(name, None)
    os.environ.update(_variables or {})


def end(work: Callable[[], Any], why: str = "") -> None:
    """Do `work` and end the child. An error is printed and ends nothing else."""
    try:
        work()
    except BaseException as error:
        traceback.print_exc()
        text = str(error).strip() or "no word"
        why = f"{type(error).__name__}: {text}"[-_LONGEST:]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(_told, json.dumps(why).encode())
        os._exit(0)


def _reap() -> None:
    """Wait until a child has ended, and report it."""
    ready, _, _ = select.select(list(_running), [], [])
    for descriptor in ready:
        child = _running.pop(descriptor)
        with os.fdopen(descriptor, "rb") as told:
            raw = told.read()
        _, status, used = os.wait4(child.pid, 0)
        why = json.loads(raw) if raw else f"its process ended with {os.waitstatus_to_exitcode(status)}"
        seconds = round(used.ru_utime + used.ru_stime, 3)
        say("baked", store=child.store, name=child.name, seconds=seconds, why=why)

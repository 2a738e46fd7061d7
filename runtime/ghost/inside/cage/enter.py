"""Puts this process, and all processes that it starts, into a cage in which a start can do no harm."""

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from runtime.ghost.inside.cage import audit, landlock, namespaces, seccomp
from runtime.ghost.inside.cage.kernel import prctl

_DEATH_SIGNAL, _NO_NEW_PRIVILEGES = 1, 38
_CPU_SECONDS = 3600
_LARGEST_FILE = 16 << 30
_MOST_THREADS = 2048
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix", "/gnu")
_SHARED_MEMORY = "/dev/shm"
_OURS = str(Path(__file__).resolve().parents[3])


def enter(work: str, writable: list[str], readable_code: list[str]) -> list[str]:
    """Enter the cage for good, before anything but the standard library is imported; return the protections.

    Files are written only below `work` and `writable`. Code and programs come from the system, from this
    Python's environment, from `readable_code`, and from what a start generates below `work`. A model's own
    code runs only if `readable_code` names the folder that transformers copies it to (`model_code`).
    """
    parent = os.getppid()
    environment = [*_environment(), _OURS]
    needed = [*environment, *readable_code, work, *writable, *_libraries()]
    holds = _limit()
    holds += namespaces.separate(needed)
    _die_with(parent)
    prctl(
        _NO_NEW_PRIVILEGES, 1
    )  # without it the kernel takes neither rules of Landlock nor a filter of calls
    alone = any(one.startswith("network") for one in holds)
    runnable = [*_SYSTEM, *environment, *readable_code, *_libraries()]
    holds += landlock.restrict([work, *writable, _SHARED_MEMORY], runnable, not alone)
    holds += seccomp.restrict(alone)
    audit.watch(
        audit.Places(
            code=_real([*environment, *readable_code, work]),
            programs=_real(runnable),
            writable=_real([work, *writable, _SHARED_MEMORY]),
            closed=_real([model_code(os.environ.get("HOME", work))]),
        )
    )
    return [*holds, "imports, programs, hosts and files (Python's audit hook)"]


def model_code(home: str) -> str:
    """Return the folder to which transformers copies a model's own code before importing it."""
    return str(Path(home) / ".cache/huggingface/modules")


def _die_with(parent: int) -> None:
    """Ask for death with the parent again, because a new user namespace cancels an earlier request."""
    prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _limit() -> list[str]:
    """Set limits. Processes are counted per user, and root's are not limited."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind, most in (
        (resource.RLIMIT_CPU, _CPU_SECONDS),
        (resource.RLIMIT_FSIZE, _LARGEST_FILE),
        (resource.RLIMIT_NPROC, _threads_of_this_user() + _MOST_THREADS),
    ):
        hard = resource.getrlimit(kind)[1]
        with contextlib.suppress(ValueError, OSError):
            limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (limit, hard))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    return ["CPU seconds, sizes of files, core dumps (limits)"]


def _threads_of_this_user() -> int:
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == os.getuid():
                count += len(os.listdir(process / "task"))  # noqa: PTH208
    return count


def _environment() -> list[str]:
    """Return the folders of this Python and its packages, including packages installed as links."""
    found = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *sys.path]
    for finder in sys.meta_path:
        mapping = getattr(sys.modules.get(getattr(finder, "__module__", "")), "MAPPING", None)
        if isinstance(mapping, dict):
            found += (str(place) for place in mapping.values())
    return [one for one in found if one.startswith("/")]


def _libraries() -> list[str]:
    """Return the libraries and folders that the loader was given by environment variables."""
    told = f"{os.environ.get('LD_PRELOAD', '')}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    return [one for one in told.replace(" ", ":").split(":") if one.startswith("/")]


def _real(places: Iterable[str]) -> tuple[str, ...]:
    return tuple({os.path.realpath(one) for one in places} - {"/"})

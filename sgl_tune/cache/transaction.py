"""Change several files of one folder as if at once: a lock, temporary files, a journal that rolls forward.

A process may be killed between any two lines. Before the journal is in place nothing has happened, and the
next one to take the lock throws the temporary files away; after that, the next one finishes the change.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from filelock import FileLock, Timeout

from sgl_tune.cache.layouts import JOURNAL, LOCK, is_temporary
from sgl_tune.errors import WorkFailed

LOCK_SECONDS = 60.0
_QUIET_SECONDS = 2.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def _silent(text: str) -> None:
    """Where nobody listens."""


class FolderGone(WorkFailed):
    """Somebody removed the folder first."""


class FolderBusy(WorkFailed):
    """Somebody else is writing, and for longer than we would wait."""


@contextlib.contextmanager
def locked(
    folder: Path, timeout: float = LOCK_SECONDS, say: Callable[[str], None] = _silent, create: bool = True
) -> Iterator[list[str]]:
    """Hold the folder for writing. Yields what it took to settle what an earlier holder left unfinished."""
    with explained(folder):
        lock = _acquire(folder, timeout, say, create)
    try:
        with explained(folder):
            settled = recover(folder)
        yield settled
    finally:
        lock.release()


def _acquire(folder: Path, timeout: float, say: Callable[[str], None], create: bool) -> FileLock:
    path = folder / LOCK
    deadline = time.monotonic() + timeout
    while True:
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.is_dir():
            raise FolderGone(f"{folder}: was removed by somebody else")
        lock = FileLock(str(path))
        try:
            path.touch(0o666)  # filelock's own mode shuts a group out
            _wait(lock, path, deadline, timeout, say)
            if path.exists():
                path.write_text(f"process {os.getpid()} on {socket.gethostname()} ({_command()})")
                return lock
        except FileNotFoundError:
            pass
        # A prune removed the folder while we waited: that lock guards nothing any more.
        lock.release()


def _wait(lock: FileLock, path: Path, deadline: float, timeout: float, say: Callable[[str], None]) -> None:
    patience = deadline - time.monotonic()
    try:
        lock.acquire(timeout=max(0.0, min(_QUIET_SECONDS, patience)))
        return
    except Timeout:
        if patience > _QUIET_SECONDS:
            say(f"waiting for {_holder(path)}, which is writing to {path.parent}")
    try:
        lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
    except Timeout:
        raise FolderBusy(
            f"{path.parent}: still in use by {_holder(path)} after {timeout:.0f} s",
            "wait until it has finished, or end it",
        ) from None


def _holder(lock: Path) -> str:
    try:
        return lock.read_text()[:200] or "another process"
    except (OSError, UnicodeDecodeError):
        return "another process"


def _command() -> str:
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]])


def publish(
    folder: Path,
    files: Mapping[str, bytes],
    remove: Collection[str] = (),
    unchanged: Callable[[], bool] = lambda: True,
) -> bool:
    """Give the files of a locked folder these contents and remove others: all of it, or, when `unchanged`
    says at the last moment that somebody without the lock wrote, nothing."""
    temporaries: dict[str, str] = {}
    try:
        with explained(folder):
            for name, content in files.items():
                temporaries[name] = _write_temporary(folder, content)
            if not unchanged():
                _discard(folder, temporaries.values())
                return False
            if len(files) + len(remove) > 1:
                _commit(folder, temporaries, remove)
    except BaseException:
        if not (folder / JOURNAL).exists():
            _discard(folder, temporaries.values())
        raise
    with explained(folder):
        _apply(folder, temporaries, remove)
    return True


def recover(folder: Path) -> list[str]:
    """Finish or discard what a killed writer left in a locked folder; says what was done."""
    done = []
    journal = folder / JOURNAL
    if journal.exists():
        plan = _read_journal(journal)
        if plan and not _overtaken(folder, journal, *plan):
            _apply(folder, *plan)
            done.append(f"{folder}: finished an interrupted change of {len(plan[0]) + len(plan[1])} files")
        else:
            journal.unlink()
            done.append(f"{folder}: dropped an interrupted change that no longer applies")
    dead = [name for name in os.listdir(folder) if is_temporary(name)]  # noqa: PTH208
    _discard(folder, dead)
    return done


def _overtaken(folder: Path, journal: Path, replace: Mapping[str, str], remove: Collection[str]) -> bool:
    """Whether a server has written its own files since. Ours are older than the journal: a rename keeps
    the time of the temporary file."""
    planned = journal.stat().st_mtime_ns
    targets = [folder / name for name in (*replace, *remove)]
    return any(target.stat().st_mtime_ns > planned for target in targets if target.exists())


def _write_temporary(folder: Path, content: bytes) -> str:
    name = f".sgl-tune-{os.getpid()}-{os.urandom(4).hex()}.tmp"
    # 0666 leaves the mode to the umask: the server that reads the file is often another user than its writer.
    descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
    except BaseException:
        _discard(folder, [name])
        raise
    return name


def _commit(folder: Path, temporaries: Mapping[str, str], remove: Collection[str]) -> None:
    plan = json.dumps({"replace": dict(temporaries), "remove": list(remove)}).encode()
    (folder / _write_temporary(folder, plan)).replace(folder / JOURNAL)
    _sync_folder(folder)


def _apply(folder: Path, temporaries: Mapping[str, str], remove: Collection[str]) -> None:
    for name, temporary in temporaries.items():
        with contextlib.suppress(FileNotFoundError):  # recovering: this one was already in place
            (folder / temporary).replace(folder / name)
    for name in remove:
        (folder / name).unlink(missing_ok=True)
    _sync_folder(folder)
    (folder / JOURNAL).unlink(missing_ok=True)


def _read_journal(path: Path) -> tuple[dict[str, str], list[str]] | None:
    """The plan, unless it would touch anything outside its own folder: then somebody else wrote it."""
    try:
        plan = json.loads(path.read_bytes())
        replace, remove = dict(plan["replace"]), list(plan["remove"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not all(_is_plain(name) for name in (*replace, *remove)):
        return None
    if not all(isinstance(name, str) and is_temporary(name) for name in replace.values()):
        return None
    return replace, remove


def _is_plain(name: object) -> bool:
    return isinstance(name, str) and Path(name).name == name and name not in ("", ".", "..")


def _discard(folder: Path, names: Collection[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turns what the disk says into one sentence with a way out."""
    try:
        yield
    except OSError as error:
        where = error.filename2 or error.filename or folder
        if error.errno in _FULL:
            raise WorkFailed(
                f"{where}: no room to write ({error.strerror}); nothing was changed",
                "free space, raise the limit, or choose another --cache-dir",
            ) from error
        if error.errno in _FORBIDDEN:
            raise WorkFailed(
                f"{where}: not writable ({error.strerror})",
                "run as the user who owns the cache, or choose another --cache-dir",
            ) from error
        raise WorkFailed(f"{where}: {error.strerror or error}", "see whether the disk is healthy") from error

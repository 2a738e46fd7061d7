"""Change several files of one folder as if at once, with a lock, temporary files, and a journal that is
rolled forward: it records on the disk what a change will do, before it is done. The process may be killed
between any two lines. Before the journal is in place nothing has changed, and the next holder of the lock
deletes the temporary files. Afterwards, the next holder finishes the change."""

import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from runtime.record.checked import from_plain
from sgl_tune.cache.disk import LARGEST
from sgl_tune.cache.folder import Folder, LeadsOut, Owner, open_folder
from sgl_tune.cache.layouts.cache import JOURNAL, LOCK, is_temporary, temporary_name
from sgl_tune.cache.lock import LOCK_SECONDS, NO_LOCKS, FolderBusy, Lock
from sgl_tune.errors import UsageError, WorkFailed

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_PLACE = (errno.ENAMETOOLONG, errno.EINVAL)
_TRIES = 100
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_LONGEST_NAME = 255
_PART = 1 << 20  # of larger files, only the beginning and the end are compared
_CLOSED = "no file, or none that can be read"


def silent(text: str) -> None:
    """Print nothing."""


class Elsewhere(WorkFailed):
    """A link leads out of the cache."""


class FolderGone(WorkFailed):
    """Another process has removed the folder."""


@contextlib.contextmanager
def locked(
    path: Path,
    timeout: float = LOCK_SECONDS,
    say: Callable[[str], None] = silent,
    create: bool = True,
    root: Path | None = None,
    owner: Owner | None = None,
) -> Iterator[tuple[Folder, list[str]]]:
    """Hold a folder for writing, after settling what an earlier holder left unfinished. Yield it, and notes
    on how that was settled and on a missing lock. Without `create` only removals follow: the folder must
    exist, and a disk too full for a lock is accepted."""
    with explained(path):
        folder, lock = _acquire(path, root, timeout, say, create, owner)
    with folder, contextlib.closing(lock) if lock else contextlib.nullcontext():
        with explained(path):
            notes = recover(folder)
        yield folder, notes if lock is None or lock.is_real else [*notes, NO_LOCKS]


def _acquire(
    path: Path,
    root: Path | None,
    timeout: float,
    say: Callable[[str], None],
    create: bool,
    owner: Owner | None,
) -> tuple[Folder, Lock | None]:
    deadline = time.monotonic() + timeout
    while True:
        folder = _opened(path, root, create, owner)
        with contextlib.ExitStack() as undo:
            undo.enter_context(folder)
            try:
                lock = Lock(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                if create or error.errno not in _FULL:
                    raise
                undo.pop_all()
                return folder, None
            undo.callback(lock.close)
            lock.wait(deadline, timeout, say)
            if lock.is_in_place() and folder.is_in_place(root):
                lock.sign()
                undo.pop_all()
                return folder, lock
        if time.monotonic() >= deadline:
            raise FolderBusy(f"{path}: is removed and made again all the time", "end what does that")


def _opened(path: Path, root: Path | None, create: bool, owner: Owner | None) -> Folder:
    """Open the folder. Try again if a prune removes the folders above while it is being made."""
    for _ in range(_TRIES):
        try:
            return open_folder(path, root, create, owner)
        except FileNotFoundError as error:
            if not create:
                raise FolderGone(f"{path}: was removed by somebody else") from None
            failed: OSError = error
        except OSError as error:
            if error.errno not in _NO_PLACE:
                raise
            failed = error
            break
    why = f"no folder can be made there ({failed.strerror})"
    raise UsageError(f"{failed.filename or path}: {why}", "choose another folder")


def publish(
    folder: Folder,
    files: Mapping[str, bytes],
    remove: Collection[str] = (),
    unchanged: Callable[[], bool] = lambda: True,
) -> bool:
    """Give the files of a locked folder these contents and remove others. If `unchanged` says at the last
    moment that another process wrote, do nothing."""
    temporaries: dict[str, str] = {}
    try:
        with explained(folder.path):
            for name, content in files.items():
                temporaries[name] = _write_temporary(folder, content)
            journal = make_journal(folder, temporaries, remove)
            if not unchanged():
                _discard(folder, temporaries.values())
                return False
            if len(files) + len(remove) > 1:
                _commit(folder, journal)
    except BaseException:
        if folder.status(JOURNAL) is None:
            _discard(folder, temporaries.values())
        raise
    with explained(folder.path):
        _apply(folder, journal)
    return True


def recover(folder: Folder) -> list[str]:
    """Finish or discard what a killed writer left in a locked folder; return what was done."""
    done = []
    if folder.status(JOURNAL):
        journal = read_journal(folder)
        if journal and not journal.is_overtaken(folder):
            _apply(folder, journal)
            done.append(f"{folder.path}: finished an interrupted change of {len(journal.seen)} files")
        else:
            folder.unlink(JOURNAL)
            done.append(f"{folder.path}: dropped an interrupted change that no longer applies")
    _discard(folder, filter(is_temporary, folder.names()))
    return done


def _write_temporary(folder: Folder, content: bytes) -> str:
    name = temporary_name()
    folder.write_new(name, [content])
    return name


def _commit(folder: Folder, journal: "Journal") -> None:
    try:
        folder.rename(_write_temporary(folder, journal.to_bytes()), JOURNAL)
    except OSError as error:
        if journal.replace or error.errno not in _FULL:
            raise
        return  # only removals: after a kill, the next prune removes the rest
    folder.sync()


def _apply(folder: Folder, journal: "Journal") -> None:
    for name, temporary in journal.replace.items():
        with contextlib.suppress(FileNotFoundError):  # recovering: this file was already in place
            folder.rename(temporary, name)
    for name in journal.remove:
        folder.unlink(name)
    folder.sync()
    folder.unlink(JOURNAL)


def _discard(folder: Folder, names: Iterable[str]) -> None:
    for name in names:
        status = folder.status(name)
        if status and not stat.S_ISDIR(status.st_mode):
            folder.unlink(name)


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn an error of the disk into one sentence with a way out."""
    try:
        yield
    except LeadsOut as error:
        raise Elsewhere(
            f"{error.filename}: {error.strerror}", "put the folder itself there, or make --cache-dir the link"
        ) from error
    except OSError as error:
        where = error.filename2 or error.filename or folder
        if error.errno in _FULL:
            raise WorkFailed(
                f"{where}: no room to write ({error.strerror}); nothing was changed",
                "free space, raise the limit, or choose a folder on another disk",
            ) from error
        if error.errno in _FORBIDDEN:
            raise WorkFailed(
                f"{where}: not writable ({error.strerror})",
                "run as the user who owns the folder, or choose another folder",
            ) from error
        remedy = "see whether the disk is healthy" if error.errno == errno.EIO else "choose another folder"
        raise WorkFailed(f"{where}: {error.strerror or error}", remedy) from error


@dataclass(frozen=True, slots=True)
class Journal:
    """The planned change of several files. `replace`: names and the temporary files that replace them.
    `seen`: each name's content before and after; any other content was written by somebody else since,
    whatever its time says."""

    replace: Mapping[str, str]
    remove: tuple[str, ...]
    seen: Mapping[str, tuple[str | None, str | None]]

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def is_overtaken(self, folder: Folder) -> bool:
        return any(_content(folder, name) not in seen for name, seen in self.seen.items())


def make_journal(folder: Folder, replace: Mapping[str, str], remove: Collection[str]) -> Journal:
    seen = {name: (_content(folder, name), _content(folder, new)) for name, new in replace.items()}
    gone = {name: (_content(folder, name), None) for name in remove}
    return Journal(dict(replace), tuple(remove), {**seen, **gone})


def _content(folder: Folder, name: str) -> str | None:
    try:
        file = folder.open(name, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError:
        return _CLOSED
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return _CLOSED
        ends = os.pread(file, _PART, 0) + os.pread(file, _PART, max(_PART, status.st_size - _PART))
        return f"{status.st_size} {sha256(ends).hexdigest()}"
    finally:
        os.close(file)


def read_journal(folder: Folder) -> Journal | None:
    """Read the journal, or return None if it is not ours: then it has no effect."""
    status = folder.status(JOURNAL)
    if status is None or status.st_size > LARGEST:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise WorkFailed(f"{folder.path / JOURNAL}: is a folder, in place of a journal", "remove it")
    _, raw = folder.read(JOURNAL)
    try:
        journal: Journal = from_plain(Journal, json.loads(raw or b""), "journal")
    except (ValueError, TypeError, RecursionError):
        return None
    names = {*journal.replace, *journal.remove}
    are_ours = all(_is_file_name(name, folder) for name in names) and journal.seen.keys() == names
    return journal if are_ours and all(map(is_temporary, journal.replace.values())) else None


def _is_file_name(name: str, folder: Folder) -> bool:
    if "/" in name or not name.isprintable() or len(os.fsencode(name)) > _LONGEST_NAME:
        return False
    status = folder.status(name)
    return name not in ("", ".", "..", LOCK, JOURNAL) and not (status and stat.S_ISDIR(status.st_mode))

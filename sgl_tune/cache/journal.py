"""A journal: it records on the disk what a change of several files will do, before it is done."""

import json
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256

from runtime.record.checked import from_plain
from sgl_tune.cache.disk import LARGEST
from sgl_tune.cache.folder import Folder
from sgl_tune.cache.layouts.cache import JOURNAL, LOCK, is_temporary
from sgl_tune.errors import WorkFailed

_LONGEST_NAME = 255
_PART = 1 << 20  # of larger files, only the beginning and the end are compared
_CLOSED = "no file, or none that can be read"


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

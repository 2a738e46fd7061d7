"""A bundle's files in a folder that nobody else can enter, before any of them comes where a server looks.

Each is checked on its way. One pass over the file is enough so, and what was checked is what lands: a second
pass could read another file than the first.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from sgl_tune.cache.folder import Folder, Owner, open_folder, signature_of
from sgl_tune.cache.layouts import MANIFEST
from sgl_tune.cache.transaction import explained
from sgl_tune.errors import WorkFailed
from sgl_tune.reading import DEEPEST, is_deeper
from sgl_tune.ship.archive import Archive, on_disk
from sgl_tune.ship.landing import Checked
from sgl_tune.ship.manifest import BadBundle, BundleManifest
from sgl_tune.ship.members import Member
from sgl_tune.ship.places import store_of
from sgl_tune.ship.rekey import Rekeyed, with_new_key
from sgl_tune.stores.readers.triton import GROUP
from sgl_tune.stores.relocate import group_at
from sgl_tune.units import human_bytes

_LARGEST_REWRITTEN = 16 << 20
_FILE, _FOLDER = 0o644, 0o755
Progress = Callable[[int], None]


@dataclass
class Staged:
    """`rewritten` are the files whose content is not the bundle's: by their new paths, with what was done."""

    files: dict[str, Checked] = field(default_factory=dict)
    bytes: int = 0
    rewritten: dict[str, str] = field(default_factory=dict)


class Staging:
    """Writes below one opened folder, into which only this process writes. `place`: where a server will find
    it; None leaves absolute paths as they are."""

    def __init__(
        self,
        root: Path,
        place: str | None,
        changes: Sequence[Rekeyed] = (),
        owner: Owner | None = None,
    ) -> None:
        self._root = open_folder(root, root)
        self._open: list[tuple[str, Folder]] = []
        self._place, self._owner = place, owner
        self._changes = {change.path: change for change in changes}
        self._names: dict[str, set[str]] = {}
        self.staged = Staged()

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave(0)
        self._root.close()

    def take(self, archive: Archive, progress: Progress) -> Staged:
        """BadBundle where anything in it is not as its manifest says."""
        self._names = _groups(archive.manifest)
        with explained(self._root.path):
            for member, content in archive.each():
                if member.kind == "folder":
                    self._enter(self._new_path(member.path).split("/"))
                else:
                    self._write(member, content)
                    progress(member.size)
        return self.staged

    def _write(self, member: Member, content: Iterable[bytes]) -> None:
        path = self._new_path(member.path)
        *above, name = path.split("/")
        folder = self._enter(above)
        if member.kind == "link":
            content = self._copied(self._new_path(member.link))
        digest = member.sha256
        change = self._rewriting(member)
        if change is not None:
            raw = b"".join(content)
            wanted = change(raw)
            content = iter((wanted,))
            if wanted != raw:
                digest = sha256(wanted).hexdigest()
                self.staged.rewritten[path] = "key" if member.path.endswith(MANIFEST) else "place"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name, flags, _FILE, dir_fd=folder.descriptor)
        try:
            for piece in content:
                _write_all(file, piece)
            if self._owner:
                os.fchown(file, *self._owner)
            self.staged.files[path] = Checked(digest, signature_of(os.fstat(file)))
        finally:
            os.close(file)
        self.staged.bytes += member.size

    def _rewriting(self, member: Member) -> Callable[[bytes], bytes] | None:
        folder, _, name = member.path.rpartition("/")
        if name == MANIFEST and folder in self._changes:
            return lambda raw: with_new_key(raw, self._changes[folder])
        if self._place is None or not _is_group(member.path):
            return None
        if member.size > _LARGEST_REWRITTEN:
            raise BadBundle(f"{member.path} has {human_bytes(member.size)}, and no group of kernels has")
        place = f"{self._place.rstrip('/')}/{folder}"
        return lambda raw: _placed(member.path, raw, place, self._names[folder])

    def _copied(self, path: str) -> Iterator[bytes]:
        """A file of its own: who writes to one of two names would change both."""
        with open_folder(self._root.path / Path(path).parent, self._root.path) as folder:
            yield from folder.pieces(Path(path).name)

    def _new_path(self, path: str) -> str:
        for before, change in self._changes.items():
            if path == before or path.startswith(f"{before}/"):
                return change.new_path + path[len(before) :]
        return path

    def _enter(self, parts: Sequence[str]) -> Folder:
        same = 0
        while same < min(len(parts), len(self._open)) and self._open[same][0] == parts[same]:
            same += 1
        self._leave(same)
        for name in parts[same:]:
            above = self._open[-1][1] if self._open else self._root
            try:
                os.mkdir(name, _FOLDER, dir_fd=above.descriptor)
                made = above.enter(name)
                if self._owner:
                    os.fchown(made.descriptor, *self._owner)
            except FileExistsError:
                made = above.enter(name)
            self._open.append((name, made))
        return self._open[-1][1] if self._open else self._root

    def _leave(self, depth: int) -> None:
        while len(self._open) > depth:
            self._open.pop()[1].close()


def check_room(root: Path, manifest: BundleManifest) -> None:
    """Before anything is written; what is declared is what is written, or nothing lands."""
    found = os.statvfs(root)
    free, needed = found.f_bavail * found.f_frsize, on_disk(manifest.files.values())
    if needed > free:
        raise WorkFailed(
            f"{root}: the bundle needs {human_bytes(needed)}, and {human_bytes(free)} are free",
            "free space, or choose a folder on another disk",
        )


def _is_group(path: str) -> bool:
    return path.rpartition("/")[2].startswith(GROUP) and store_of(path) in ("triton", "inductor")


def _groups(manifest: BundleManifest) -> dict[str, set[str]]:
    """The names in each folder that has a group."""
    folders = {path.rpartition("/")[0] for path in manifest.files if _is_group(path)}
    found: dict[str, set[str]] = {folder: set() for folder in folders}
    for path in manifest.files:
        folder, _, name = path.rpartition("/")
        if folder in found:
            found[folder].add(name)
    return found


def _placed(path: str, raw: bytes, place: str, there: set[str]) -> bytes:
    try:
        told = json.loads(raw)
        if isinstance(told, (dict, list)) and is_deeper(told, DEEPEST):
            raise ValueError("nested too deep")
        wanted = group_at(told, place, there)
    except RecursionError:
        raise BadBundle(f"{path}: nested too deep") from None
    except ValueError as error:
        raise BadBundle(f"{path}: {error}") from None
    return raw if wanted == told else json.dumps(wanted).encode()


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        done = os.write(file, view)
        if not done:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[done:]

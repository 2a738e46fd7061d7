"""Write a bundle's files into a private folder, and check each, before any of them comes where a server
looks. One pass over the bundle is enough, and exactly what was checked lands: a second pass could read a
changed file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from sgl_tune.cache.folder import Folder, Owner, Way, open_folder, signature_of
from sgl_tune.cache.layouts.cache import MANIFEST
from sgl_tune.cache.transaction import explained
from sgl_tune.errors import SglTuneError
from sgl_tune.reading import DEEPEST, is_deeper
from sgl_tune.ship.archive import Archive, on_disk
from sgl_tune.ship.landing import Checked
from sgl_tune.ship.manifest import BadBundle, BundleManifest
from sgl_tune.ship.members import Member
from sgl_tune.ship.places import store_of
from sgl_tune.ship.rekey import Rekeyed, with_new_key
from sgl_tune.ship.remote.partial import check_room
from sgl_tune.stores.readers.triton import GROUP
from sgl_tune.stores.relocate import group_at
from sgl_tune.units import human_bytes

_LARGEST_REWRITTEN = 16 << 20
Progress = Callable[[int], None]


@dataclass
class Staged:
    """Staged files. `rewritten`: new paths of files that differ from the bundle's, and the reason."""

    files: dict[str, Checked] = field(default_factory=dict)
    bytes: int = 0
    rewritten: dict[str, str] = field(default_factory=dict)


class Staging:
    """Writes a bundle's files below one opened folder that no other process writes to. `place`: where a
    server will find it; None: absolute paths are not rewritten."""

    def __init__(
        self, root: Path, place: str | None, changes: Sequence[Rekeyed] = (), owner: Owner | None = None
    ) -> None:
        self._root, self._place = root, place
        self._way = Way(create=True, owner=owner)
        self._changes = {change.path: change for change in changes}
        self._names: dict[str, set[str]] = {}
        self.staged = Staged()

    def take(self, archive: Archive, progress: Progress) -> Staged:
        """Write all files; raise BadBundle if anything is not as its manifest says."""
        check_room(self._root, on_disk(archive.manifest.files.values()), self._root)
        self._names = _groups(archive.manifest)
        with self._way, explained(self._root):
            for member, content in archive.each():
                if member.kind == "folder":
                    self._folder(self._new_path(member.path))
                else:
                    self._write(member, content)
                    progress(member.size)
        return self.staged

    def _write(self, member: Member, content: Iterable[bytes]) -> None:
        path = self._new_path(member.path)
        above, _, name = path.rpartition("/")
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
        opened = self._folder(above).open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(opened, "wb") as file:
            file.writelines(content)
            file.flush()
            self.staged.files[path] = Checked(digest, signature_of(os.fstat(file.fileno())))
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
        """Copy a file. A hard link would change both names when a server writes to one."""
        with open_folder(self._root / Path(path).parent, self._root) as folder:
            yield from folder.pieces(Path(path).name)

    def _new_path(self, path: str) -> str:
        for before, change in self._changes.items():
            if path == before or path.startswith(f"{before}/"):
                return change.new_path + path[len(before) :]
        return path

    def _folder(self, path: str) -> Folder:
        return self._way.to(self._root / path, self._root)


@contextmanager
def said_of(name: Path, folder: Path) -> Iterator[None]:
    """In errors, replace the path of a temporary folder by the name it stands for."""
    try:
        yield
    except SglTuneError as error:
        said, remedy = (
            text and text.replace(str(folder), str(name)) for text in (error.message, error.remedy)
        )
        raise type(error)(str(said), remedy) from error


def _is_group(path: str) -> bool:
    return path.rpartition("/")[2].startswith(GROUP) and store_of(path) in ("triton", "inductor")


def _groups(manifest: BundleManifest) -> dict[str, set[str]]:
    """Return the names in each folder that has a group of Triton's."""
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

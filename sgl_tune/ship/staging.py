"""Write a bundle's files into a private folder, and check each, before any of them comes where a server
looks. One pass over the bundle is enough, and exactly what was checked lands: a second pass could read a
changed file."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from runtime.server.cache_key import PART_NAMES, cache_folder, cache_key
from sgl_tune.cache.folder import Folder, Owner, Way, open_folder, signature_of
from sgl_tune.cache.layouts.cache import MANIFEST
from sgl_tune.cache.manifest import parse_manifest
from sgl_tune.cache.transaction import explained
from sgl_tune.errors import SglTuneError, UsageError
from sgl_tune.reading import DEEPEST, is_deeper
from sgl_tune.ship.archive import Archive, on_disk
from sgl_tune.ship.landing import Checked
from sgl_tune.ship.manifest import BadBundle, BundleManifest, PackedCache
from sgl_tune.ship.members import Member
from sgl_tune.ship.places import store_of
from sgl_tune.ship.remote.partial import check_room
from sgl_tune.stores.readers.triton import GROUP
from sgl_tune.stores.relocate import group_at
from sgl_tune.units import human_bytes

_LARGEST_REWRITTEN = 16 << 20
Progress = Callable[[int], None]
PART = "model_path"
_AT = PART_NAMES.index("model path")
_PATHS = ("model_path", "speculative_draft_model_path")  # a deployment's paths, by SGLang's names


class Rekeyed(NamedTuple):
    """A changed key. `path`, `new_path`: the cache's folders. SGLang hashes the model's path as typed, so
    `/models/glm` and the model's name are two keys for the same kernels. No rank file depends on the path:
    only the folder's name and the manifest in it change."""

    path: str
    new_path: str
    key: str
    new_key: str
    part: str
    before: str
    after: str


def rekeyed(manifest: BundleManifest, asked: Sequence[str]) -> list[Rekeyed]:
    """Return the changes that `model_path=NEW` asks for, or `OLD=NEW` if the bundle has several models."""
    known = {cache.key_parts[_AT] for cache in manifest.caches if _is_proven(cache)}
    changes = dict(_change(one, known) for one in asked)
    if not changes:
        return []
    found = []
    for cache in manifest.caches:
        if not _is_proven(cache):
            raise UsageError(
                f"--rekey: the bundle does not say from what the key {cache.key} was made",
                "pack it with the sgl-tune.json that `warm` writes",
            )
        if cache.key_parts[_AT] in changes:
            found.append(_rekey(cache, changes[cache.key_parts[_AT]]))
    _check_apart(manifest, found)
    return found


def _change(asked: str, known: set[str]) -> tuple[str, str]:
    before, equals, after = asked.partition("=")
    if not equals or not after or not before:
        raise UsageError(f"--rekey {asked}: is not a change", f"write --rekey {PART}=/models/glm")
    if before in known:
        return before, after
    if before != PART:
        has = f"the bundle's model paths are {', '.join(sorted(known)) or 'not known'}"
        raise UsageError(f"--rekey {asked}: only {PART} can be changed; {has}", f"--rekey {PART}=/models/glm")
    if len(known) != 1:
        remedy = f"name one of them: --rekey {min(known)}={after}" if known else None
        raise UsageError(f"--rekey {asked}: the bundle has {len(known)} model paths", remedy)
    return next(iter(known)), after


def _is_proven(cache: PackedCache) -> bool:
    return len(cache.key_parts) > _AT and cache_key(cache.key_parts) == cache.key


def _rekey(cache: PackedCache, after: str) -> Rekeyed:
    parts = (*cache.key_parts[:_AT], after, *cache.key_parts[_AT + 1 :])
    key = cache_key(parts)
    path = cache_folder(cache.flashinfer, cache.arch, key)
    return Rekeyed(cache.path, path, cache.key, key, PART, cache.key_parts[_AT], after)


def _check_apart(manifest: BundleManifest, found: Sequence[Rekeyed]) -> None:
    moved = {one.path: one.new_path for one in found}
    places = [moved.get(cache.path, cache.path) for cache in manifest.caches]
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice:
        raise UsageError(f"--rekey: two caches of the bundle would become {twice}", "unpack them one by one")


def with_new_key(raw: bytes, change: Rekeyed) -> bytes:
    """Return the manifest beside the rank files with the new key."""
    manifest = parse_manifest(Path(change.path) / "sgl-tune.json", raw)
    parts = [*manifest.key_parts[:_AT], change.after, *manifest.key_parts[_AT + 1 :]]
    told = {**json.loads(raw), "key_parts": parts}
    if manifest.deployment:
        told["deployment"] = _deployment(manifest.deployment, change)
    return json.dumps(told, indent=2).encode() + b"\n"


def _deployment(told: Mapping[str, Any], change: Rekeyed) -> dict[str, Any]:
    asked = told.get("asked")
    renamed = _renamed(told, change)
    return {**renamed, "asked": _renamed(asked, change)} if isinstance(asked, Mapping) else renamed


def _renamed(told: Mapping[str, Any], change: Rekeyed) -> dict[str, Any]:
    wrong = {name for name in _PATHS if told.get(name) == change.before}
    return {name: change.after if name in wrong else value for name, value in told.items()}


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

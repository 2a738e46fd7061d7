"""Adapt a root to the path under which a server finds it, so that nothing is compiled again. Each change
is correct by itself and can be repeated: after a kill, some items are adapted and the others are
unchanged, and the next run adapts those. A file that a library could load stays in place until the new one
is on the disk beside it; then the new file replaces it."""

import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sgl_tune.cache.folder import Folder, Owner, entered, open_folder
from sgl_tune.cache.transaction import explained
from sgl_tune.errors import WorkFailed
from sgl_tune.stores.find import Stored
from sgl_tune.stores.item import DEEPEST_FOLDER, Listing, Setting, listed, listing, read_json
from sgl_tune.stores.offer import PACKAGE, offer_of, package_files
from sgl_tune.stores.readers.objects import OBJECT
from sgl_tune.stores.readers.triton import GROUP
from sgl_tune.stores.rows import AOT_PACKAGE

_NEW = ".sgl-tune-relocated-"
Step = Callable[[], None]


class Mended(NamedTuple):
    """A store after relocation. `changed`: items that are, or would be, changed. `right`: those that were
    right already."""

    store: str
    path: Path
    what: str
    changed: int
    right: int
    unmended: tuple[str, ...] = ()


def relocate(
    stored: Stored, place: str, dry_run: bool, step: Step, owner: Owner | None = None
) -> Mended | None:
    """Adapt a store to `place`, the path under which a server finds it. `owner`: gets a new package.
    Return None for a store that works anywhere unchanged."""
    with explained(stored.path), open_folder(stored.path, stored.root) as folder:
        if stored.store in ("triton", "inductor"):
            return _groups(stored, folder, place, dry_run, step)
        if stored.store == "flashinfer-jit":
            return _offer(stored, folder, place, dry_run, owner)
        if stored.store == "cute-dsl":
            made = list(_locks(folder, DEEPEST_FOLDER, dry_run))
            return Mended(stored.store, stored.path, "lock files", sum(made), len(made) - sum(made))
        if stored.store == "tilelang":
            made = list(_staging(folder, dry_run))
            return Mended(stored.store, stored.path, "staging folders", sum(made), len(made) - sum(made))
    return None


def _groups(stored: Stored, folder: Folder, place: str, dry_run: bool, step: Step) -> Mended:
    """Rewrite Triton's group files, which name other files by absolute paths."""
    changed = right = 0
    unmended: list[str] = []
    for below, where, group, found in _each_group(folder, place, DEEPEST_FOLDER):
        step()
        try:
            told = read_json(below, group)
            wanted = group_at(told, where, found.files)
        except (OSError, ValueError) as error:
            unmended.append(f"{below.path / group}: {error}")
            continue
        if wanted == told:
            right += 1
            continue
        changed += 1
        if not dry_run:
            _write_beside(below, group, json.dumps(wanted).encode(), found.files[group])
    if changed and not dry_run:
        os.sync()
        for below, _, group, found in _each_group(folder, place, DEEPEST_FOLDER):
            if _NEW + group in found.files:
                below.rename(_NEW + group, group)
    return Mended(stored.store, stored.path, "groups of kernels", changed, right, tuple(unmended))


def _each_group(folder: Folder, place: str, depth: int) -> Iterator[tuple[Folder, str, str, Listing]]:
    found = listing(folder)
    for name in sorted(found.files):
        if name.startswith(GROUP):
            yield folder, place, name, found
    for name in found.folders if depth else ():
        with entered(folder, name) as below:
            yield from _each_group(below, f"{place}/{name}", depth - 1)


def group_at(told: Any, place: str, there: Collection[str]) -> Any:
    """Return the group with its files at `place`; raise ValueError if one of them is not `there`."""
    children = told.get("child_paths") if isinstance(told, dict) else None
    if not isinstance(children, dict) or not all(isinstance(path, str) for path in children.values()):
        raise ValueError("it names no files")
    files = {name: path.rpartition("/")[2] for name, path in children.items()}
    missing = next((file for file in files.values() if file not in there), None)
    if missing is not None:
        raise ValueError(f"{missing} is missing, so the kernel is compiled again")
    return {**told, "child_paths": {name: f"{place}/{file}" for name, file in files.items()}}


def _write_beside(folder: Folder, name: str, content: bytes, before: os.stat_result) -> None:
    """Write a new file with the mode and the owner of the file that it will replace."""
    new = _NEW + name
    folder.unlink(new)
    descriptor = folder.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        os.fchmod(descriptor, before.st_mode & 0o777)
        if os.geteuid() == 0:
            os.fchown(descriptor, before.st_uid, before.st_gid)


def _offer(stored: Stored, folder: Folder, place: str, dry_run: bool, owner: Owner | None) -> Mended:
    """Write the package that offers the modules, because ninja would build them again at any other path."""
    setting = Setting(place, looks=False)
    offer = offer_of(stored.items(setting), folder)
    many = sum(len(row["names"]) for row in offer["modules"].values())
    at = stored.root / AOT_PACKAGE / PACKAGE
    files = package_files(offer, os.path.relpath(stored.path, at))
    what = "modules offered to FlashInfer by a package"
    if _holds(at, stored.root, files):
        return Mended(stored.store, stored.path, what, 0, many)
    if many and not dry_run:
        with open_folder(at, stored.root, create=True, owner=owner) as package:
            for name, content in files.items():
                temporary = f".{name}.new"  # if this run is killed, the next one uses the file
                package.unlink(temporary)
                package.write_new(temporary, [content])
                package.rename(temporary, name)
    return Mended(stored.store, stored.path, what, many, 0)


def _holds(at: Path, root: Path, files: dict[str, bytes]) -> bool:
    try:
        with open_folder(at, root) as package:
            return all(package.read(name)[1] == content for name, content in files.items())
    except OSError:
        return False


def _locks(folder: Folder, depth: int, dry_run: bool) -> Iterator[bool]:
    """Create objects' lock files: SGLang opens one before a lookup, and cannot create it if the folder is
    read-only."""
    found = listing(folder)
    for match in filter(None, map(OBJECT.fullmatch, sorted(found.files))):
        lock = f"{match[1]}.lock"
        if lock not in found.files and not dry_run:
            os.close(folder.open(lock, os.O_WRONLY | os.O_CREAT))
        yield lock not in found.files
    for name in found.folders if depth else ():
        with entered(folder, name) as below:
            yield from _locks(below, depth - 1, dry_run)


def _staging(folder: Folder, dry_run: bool) -> Iterator[bool]:
    """Create TileLang's folders: it creates them at the first kernel, which fails if the folder is
    read-only."""
    for version in listing(folder).folders:
        for platform in listed(folder, version).folders:
            with entered(folder, version, platform) as below:
                inside = listing(below).folders
                if "kernels" in inside:
                    yield ".staging" not in inside
                    if not dry_run:
                        below.enter(".staging", create=True).close()


@dataclass(frozen=True, slots=True)
class MendedRoot:
    """A relocated root. `failed`: the number of stores that could not be adapted; each was printed."""

    mended: tuple[Mended, ...]
    failed: int

    def stores(self, stored: Sequence[Stored]) -> set[str]:
        """Return the stores that a server can use. FlashInfer's modules count if they are offered."""
        offered = {one.store for one in self.mended if one.changed + one.right}
        return {one.store for one in stored if one.store != "flashinfer-jit" or one.store in offered}


def mend(
    stored: Sequence[Stored], root: Path, place: str, dry_run: bool, step: Step, warn: Callable[[str], None]
) -> MendedRoot:
    """Relocate every store. If one fails, the others are still relocated."""
    mended: list[Mended] = []
    failed = 0
    for one in stored:
        try:
            done = relocate(one, one.seen_at(place, root), dry_run, step)
        except WorkFailed as error:
            warn(f"{error.message}; {error.remedy}" if error.remedy else error.message)
            failed += 1
        else:
            mended += [done] if done else []
    return MendedRoot(tuple(mended), failed)

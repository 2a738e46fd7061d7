"""Move stores from the staging folder to where servers look. Items are renamed, or merged file by file if
they already exist. If the process is killed, every item that has landed is complete. Unpacking again lands
the rest."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from sgl_tune.cache.folder import Folder, LeadsOut, Owner, Signature, Way, entered, open_folder, signature_of
from sgl_tune.cache.layouts.cache import MANIFEST, temporary_name
from sgl_tune.cache.transaction import explained
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.ship.places import OFFERS, store_of
from sgl_tune.stores.find import TACTICS
from sgl_tune.stores.readers.triton import GROUP
from sgl_tune.stores.rows import AOT_PACKAGE

TACTICS_ROOT = "flashinfer"
_NOT_HERE = (TACTICS_ROOT, AOT_PACKAGE)
_FULL = (errno.ENOTEMPTY, errno.EEXIST)


@dataclass
class Landed:
    """Counts of files. `replaced`: had another content. `removed`: counts folders."""

    same: int = 0
    replaced: int = 0
    removed: int = 0


def missing_folders(root: Path) -> list[Path]:
    """Return `root` and the folders above it that do not exist, the deepest first."""
    root = root.absolute()
    return [path for path in (root, *root.parents) if not path.exists()]


def remove_empty(folders: Iterable[Path]) -> None:
    for path in folders:
        with contextlib.suppress(OSError):
            path.rmdir()


def check_way(staged: Path, root: Path) -> None:
    """Refuse what would stop the landing half-way: a file or a link in place of a folder."""
    if root.is_dir():
        with explained(root), open_folder(staged, staged) as source, open_folder(root, root) as target:
            _check_way(source, target)


def land_stores(staged: Path, root: Path, replace: bool, owner: Owner | None) -> Landed:
    landed = Landed()
    with (
        explained(root),
        open_folder(staged, staged) as source,
        open_folder(root, root, owner=owner) as target,
    ):
        names = sorted(name for name in source.names() if name not in _NOT_HERE)
        if replace:
            for parts in _units(source, names):
                landed.removed += _moved_away(source, target, parts)
        for name in names:
            _land(name, source, target, landed)
        target.sync()
    return landed


def _check_way(source: Folder, target: Folder) -> None:
    for name in source.names():
        status, there = source.status(name), target.status(name)
        if status is None or there is None or not stat.S_ISDIR(status.st_mode):
            if there is not None and stat.S_ISDIR(there.st_mode):
                raise UsageError(
                    f"{target.path / name}: is a folder, where a file belongs",
                    "move it away, and unpack again",
                )
            continue
        try:
            with entered(source, name) as inner, entered(target, name) as other:
                _check_way(inner, other)
        except NotADirectoryError:
            raise UsageError(
                f"{target.path / name}: is no folder, and one belongs there", "move it away, and unpack again"
            ) from None


def _land(name: str, source: Folder, target: Folder, landed: Landed) -> None:
    status = source.status(name)
    if status is not None and stat.S_ISDIR(status.st_mode):
        if target.status(name) is None and _renamed(name, source, target):
            return
        with entered(source, name) as inner, entered(target, name, create=True) as other:
            # Groups last, because a group names files that must exist already.
            for below in sorted(inner.names(), key=lambda one: (one.startswith(GROUP), one)):
                _land(below, inner, other, landed)
        return
    there = target.status(name)
    if there is not None:
        if stat.S_ISREG(there.st_mode) and _are_equal(name, source, target):
            landed.same += 1
            return
        landed.replaced += 1
    if not _renamed(name, source, target):
        _copy(name, source, target)


def _renamed(name: str, source: Folder, target: Folder) -> bool:
    """Rename an item. Return False if `target` has a full folder of its name or another file system."""
    try:
        os.rename(name, name, src_dir_fd=source.descriptor, dst_dir_fd=target.descriptor)
    except OSError as error:
        if error.errno in _FULL or error.errno == errno.EXDEV:
            return False
        if error.errno == errno.ENOTDIR:
            raise LeadsOut(target.path / name) from None
        raise OSError(error.errno, error.strerror, str(target.path / name)) from error
    return True


def _copy(name: str, source: Folder, target: Folder) -> None:
    status = source.status(name)
    temporary = temporary_name()
    target.write_new(temporary, source.pieces(name), status and status.st_mode & 0o777)
    target.rename(temporary, name)


def _are_equal(name: str, source: Folder, target: Folder) -> bool:
    ours, theirs = source.status(name), target.status(name)
    return bool(ours and theirs and ours.st_size == theirs.st_size) and _digest(source, name) == _digest(
        target, name
    )


def _units(source: Folder, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the units that `--replace` replaces: a store's folder, or one version's folder of FlashInfer."""
    found: list[tuple[str, ...]] = []
    for name in names:
        if name != ".cache":
            found.append((name,))
            continue
        with entered(source, name, "flashinfer") as one:
            found += [(name, "flashinfer", below) for below in one.names()]
    return found


def _moved_away(source: Folder, target: Folder, parts: tuple[str, ...]) -> bool:
    """Move a folder into the staging folder, which is removed at the end; return whether it existed."""
    away = f".replaced-{os.urandom(4).hex()}"
    with contextlib.suppress(FileNotFoundError), entered(target, *parts[:-1]) as folder:
        os.rename(parts[-1], away, src_dir_fd=folder.descriptor, dst_dir_fd=source.descriptor)
        return True
    return False


class Checked(NamedTuple):
    """A staged file: its content's sha256, and how it looked when it was written."""

    sha256: str
    signature: Signature


def check_landed(files: Mapping[str, Checked], root: Path) -> None:
    """Raise WorkFailed if a file is not as it was checked. Of tactics any regular file will do: they are
    merged with existing ones, and a server may already add to them."""
    with Way() as way:
        wrong = [path for path, checked in sorted(files.items()) if not _landed(path, checked, root, way)]
    if wrong:
        raise WorkFailed(
            f"{root}: {len(wrong):,} of the bundle's {len(files):,} files did not land as they were checked,"
            f" {wrong[0]} among them",
            "somebody else removes or writes files there: end that, and unpack again",
        )


def _landed(path: str, checked: Checked, root: Path, way: Way) -> bool:
    name = path.rpartition("/")[2]
    is_tactic = store_of(path) == TACTICS
    if path in OFFERS or (is_tactic and name == MANIFEST):  # sgl-tune itself writes these here, if at all
        return True
    try:
        folder = way.to((root / path).parent, root)
        status = folder.status(name)
        if status is None or not stat.S_ISREG(status.st_mode):
            return False
        return (
            is_tactic or signature_of(status) == checked.signature or _digest(folder, name) == checked.sha256
        )
    except OSError:
        return False


def _digest(folder: Folder, name: str) -> str:
    found = sha256()
    for piece in folder.pieces(name):
        found.update(piece)
    return found.hexdigest()

"""An opened folder of a cache. Work continues in it even if its name comes to mean another folder. The
path that a user names may contain links. Below it, where others may write too, no link is followed:
neither on the way to a folder nor in place of a file."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from sgl_tune.cache.disk import read_regular, slurp

# What shows whether a file is still the same; compared for equality, so clocks do not matter.
Signature = tuple[int, int, int]

Slurped = tuple[os.stat_result, bytes | None]

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PARTS_BELOW_ROOT = 5  # flashinfer/autotune/VERSION/ARCH/KEY


def signature_of(status: os.stat_result) -> Signature:
    return status.st_ino, status.st_size, status.st_mtime_ns


class Owner(NamedTuple):
    """The owner of new files and folders, if root makes them."""

    uid: int
    gid: int


class LeadsOut(OSError):
    """A link was found where only a folder of the cache itself is allowed."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.ELOOP, "is a link, and none is followed inside a cache folder", str(path))


class Folder:
    """An opened folder. `parent`: the opened folder above, or None for the one that a user named. `owner`:
    the owner of new files and folders."""

    def __init__(
        self, descriptor: int, name: Path | str, parent: Folder | None = None, owner: Owner | None = None
    ) -> None:
        self.descriptor, self._name, self.parent, self.owner = descriptor, name, parent, owner

    @cached_property
    def path(self) -> Path:
        return self.parent.path / self._name if self.parent else Path(self._name)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        """Close this folder and the folders above it, which were opened on the way."""
        self.close()
        if self.parent:
            self.parent.__exit__()

    def close(self) -> None:
        os.close(self.descriptor)

    def is_in_place(self, root: Path | None) -> bool:
        """Whether the path still leads to this folder, and not to another one put in its place."""
        try:
            with open_folder(self.path, root) as named:
                return os.path.samestat(os.fstat(named.descriptor), os.fstat(self.descriptor))
        except FileNotFoundError:
            return False

    def names(self) -> list[str]:
        return os.listdir(self.descriptor)  # noqa: PTH208 a descriptor is no path

    def status(self, name: str) -> os.stat_result | None:
        """Return the file's status; of a link, the link's own."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def signature(self, name: str) -> Signature | None:
        status = self.status(name)
        return signature_of(status) if status else None

    def read(self, name: str) -> tuple[os.stat_result, bytes | None]:
        with self._naming(name):
            return slurp(name, self.descriptor)

    def open(self, name: str, flags: int) -> int:
        """Open a file. Mode 0666 leaves the rights to the umask, because readers are often other users."""
        safe = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with self._naming(name):
            file = os.open(name, safe, 0o666, dir_fd=self.descriptor)
            if self.owner and flags & os.O_EXCL:  # the name may be another file's by now
                os.fchown(file, *self.owner)
            return file

    def write_new(self, name: str, pieces: Iterable[bytes], mode: int | None = None) -> None:
        """Write a file that does not exist yet to the disk. If this fails, the file is removed."""
        descriptor = self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.writelines(pieces)
                stream.flush()
                if mode is not None:
                    os.fchmod(descriptor, mode)
                os.fsync(descriptor)
        except BaseException:
            self.unlink(name)
            raise

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file, one megabyte at a time."""
        file = self.open(name, os.O_RDONLY)
        try:
            while piece := os.read(file, 1 << 20):
                yield piece
        finally:
            os.close(file)

    def rename(self, name: str, new: str) -> None:
        with self._naming(new):
            os.rename(name, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def unlink(self, name: str) -> None:
        with self._naming(name), contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def remove_folder(self, name: str) -> bool:
        try:
            os.rmdir(name, dir_fd=self.descriptor)
        except OSError:  # not empty, gone already, or a link
            return False
        return True

    def sync(self) -> None:
        try:
            with self._naming("."):
                os.fsync(self.descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot sync
                raise

    def enter(self, name: str, create: bool = False) -> Folder:
        made = create and self._makes(name)
        try:
            opened = os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=self.descriptor)
            if made and self.owner:
                _give_new(opened, self.owner)
            return Folder(opened, name, self, self.owner)
        except OSError as error:
            status = self.status(name)
            if status and stat.S_ISLNK(status.st_mode):
                raise LeadsOut(self.path / name) from None
            raise self._named(error, name) from error

    def _makes(self, name: str) -> bool:
        try:
            with self._naming(name):
                os.mkdir(name, dir_fd=self.descriptor)
        except FileExistsError:
            return False
        return True

    @contextlib.contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._named(error, name) from error

    def _named(self, error: OSError, name: str) -> OSError:
        """Return the error with the full path in place of the name."""
        return OSError(error.errno, error.strerror, str(self.path / name))


def _give_new(folder: int, owner: Owner) -> None:
    """Give the folder to `owner`, unless another user's or a filled folder has taken its name."""
    if os.fstat(folder).st_uid == os.geteuid() and not os.listdir(folder):
        os.fchown(folder, *owner)


def open_folder(
    path: Path, root: Path | None = None, create: bool = False, owner: Owner | None = None
) -> Folder:
    """Open a folder. `root`: the part that a user named; by default the part before SGLang's layout."""
    root = root or _before_layout(path)
    if create:
        root.mkdir(parents=True, exist_ok=True)
    folder = Folder(os.open(root, _OPEN), root, owner=owner)
    try:
        for name in path.relative_to(root).parts:
            folder = folder.enter(name, create)
    except BaseException:
        folder.__exit__()
        raise
    return folder


@contextlib.contextmanager
def entered(folder: Folder, *names: str, create: bool = False) -> Iterator[Folder]:
    """Open a folder below; raise OSError if one on the way cannot be opened or was replaced by a link."""
    with contextlib.ExitStack() as opened:
        for name in names:
            folder = folder.enter(name, create)
            opened.callback(folder.close)
        yield folder


class Way:
    """Keeps the folders on the way to the last one open, because the next one mostly lies beside it."""

    def __init__(self, create: bool = False, owner: Owner | None = None) -> None:
        """`create`: create missing folders below the root, for this owner."""
        self._create, self._owner = create, owner
        self._root: Path | None = None
        self._folders: list[Folder] = []
        self._names: list[str] = []

    def __enter__(self) -> Way:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave(0)

    def to(self, path: Path, root: Path | None = None) -> Folder:
        """Return the opened folder of this path. It stays open until the next path is requested."""
        root = root or _before_layout(path)
        if not self._folders or (root is not self._root and root != self._root):
            self._leave(0)
            self._root, self._folders = root, [Folder(os.open(root, _OPEN), root, owner=self._owner)]
        depth = len(root.parts)
        if path.parts[:depth] != root.parts:
            raise ValueError(f"{path} is not below {root}")
        names = path.parts[depth:]
        pairs = zip(names, self._names, strict=False)
        known = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._leave(known + 1)
        for name in names[known:]:
            self._folders.append(self._folders[-1].enter(name, self._create))
            self._names.append(name)
        return self._folders[-1]

    def _leave(self, depth: int) -> None:
        while len(self._folders) > depth:
            self._folders.pop().close()
        del self._names[max(depth - 1, 0) :]


def read_below(path: Path, root: Path | None = None) -> bytes:
    """Read a regular file of a cache; raise OSError for anything else."""
    with open_folder(path.parent, root) as folder:
        return read_regular(path.name, folder.descriptor)


def reader(path: Path, way: Way, root: Path | None = None) -> Callable[[Path], Slurped]:
    """Return a function that reads files of this folder and of its subfolders, until `way` goes elsewhere."""
    folder = way.to(path, root)

    def read(file: Path) -> Slurped:
        if file.parent == path:
            return slurp(file.name, folder.descriptor)
        with entered(folder, file.parent.name) as below:
            return slurp(file.name, below.descriptor)

    return read


def _before_layout(path: Path) -> Path:
    below = path.parts[-_PARTS_BELOW_ROOT:]
    return path.parents[_PARTS_BELOW_ROOT - 1] if below[:2] == ("flashinfer", "autotune") else path

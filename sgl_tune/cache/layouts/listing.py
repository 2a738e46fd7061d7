"""The names in one folder, by which a reader recognises a layout."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sgl_tune.cache.folder import Way
from sgl_tune.cache.layouts.cache import is_private

OnError = Callable[[OSError], None]


class Listing(NamedTuple):
    folder: Path
    files: tuple[str, ...]
    folders: tuple[str, ...]
    root: Path

    def paths(self, names: tuple[str, ...] | list[str]) -> tuple[Path, ...]:
        return tuple(self.folder / name for name in names)

    def parents(self, count: int) -> list[str]:
        """Return the names of the folder and its ancestors, nearest first."""
        parts = self.folder.parts
        if len(parts) > count and ".." not in parts:
            return list(parts[: -count - 1 : -1])
        here = os.path.abspath(self.folder).split(os.sep)  # noqa: PTH100, PTH206 resolve() follows links
        return (here[::-1] + [""] * count)[:count]

    def temporary(self) -> list[str]:
        """Return the temporary files of any writer."""
        return [name for name in self.files if name.startswith(".") and name.endswith((".tmp", ".journal"))]


def list_folder(folder: Path, root: Path, on_error: OnError) -> Listing:
    with Way() as way:
        return list_on(way, folder, root, on_error)


def list_on(way: Way, folder: Path, root: Path, on_error: OnError) -> Listing:
    """Return one folder's names, without private folders. Links to folders are left out: they may lead in
    circles or elsewhere."""
    files, folders = [], []
    try:
        with os.scandir(way.to(folder, root).descriptor) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    folders += [] if is_private(entry.name) else [entry.name]
                elif not _leads_to_folder(entry):
                    files.append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        pass  # it was removed meanwhile
    except OSError as error:
        error.filename = error.filename or str(folder)  # Python gives no name for a descriptor
        on_error(error)
    return Listing(folder, tuple(sorted(files)), tuple(sorted(folders)), root)


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False

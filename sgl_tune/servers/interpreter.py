"""Find a Python on this machine and the folders from which it imports packages, without running it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sgl_tune.reading import bounded_bytes

_NAMES = ("bin/python3", "bin/python")
_LINE = re.compile(r"^\s*([\w-]+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_VERSION = re.compile(r"(\d+)\.(\d+)")
_ELF = b"\x7fELF"
_LARGEST_SETTING = 1 << 20
_USR = Path("/usr")


class NotPython(ValueError):
    """A path names no readable Python. The text names the path."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python found on the disk. `folders`: its search path. The user's own site folder is left out,
    because servers start without it."""

    python: Path
    version: str
    folders: tuple[Path, ...]


def interpreter_at(path: Path) -> Interpreter:
    """Return the Python that `path` names: a program, or a venv or another folder with bin/python3 in it."""
    python = _program(path.expanduser().absolute())
    venv = next((one for one in (python.parent, python.parents[1]) if (one / "pyvenv.cfg").is_file()), None)
    if venv is None:
        home = python.resolve().parents[1]
        version = _version_of(home, python.resolve().name)
        folders = list(_packages(home, version))
    else:
        settings = _settings(venv / "pyvenv.cfg")
        version = _version_of(venv, f"python{settings.get('version') or settings.get('version_info', '')}")
        folders = list(_packages(venv, version))
        if settings.get("include-system-site-packages", "").lower() == "true":
            folders += _packages(Path(settings.get("home", venv / "bin")).resolve().parent, version)
    if not folders:
        raise NotPython(f"{path}: no lib/python{version}/site-packages belongs to it")
    return Interpreter(python, version, (*folders, *_added_by(folders)))


def _program(path: Path) -> Path:
    if path.is_dir():
        found = next((path / name for name in _NAMES if os.path.lexists(path / name)), None)
        if found is None:
            raise NotPython(f"{path}: no Python: there is no bin/python3 in it")
        path = found
    if not path.exists():
        raise NotPython(f"{path}: {'leads to nothing' if path.is_symlink() else 'no such file or folder'}")
    try:
        with path.open("rb") as file:
            is_program = file.read(len(_ELF)) == _ELF
    except OSError as error:
        raise NotPython(f"{path}: cannot be read: {error.strerror}") from error
    if not is_program:
        raise NotPython(f"{path}: a file that is no Python program; name the folder that has bin/python3")
    if not os.access(path, os.X_OK):
        raise NotPython(f"{path}: this user may not run it")
    return path


def _settings(path: Path) -> Mapping[str, str]:
    try:
        text = bounded_bytes(path, _LARGEST_SETTING).decode("utf-8", "replace")
    except OSError as error:
        raise NotPython(f"{path}: cannot be read: {error.strerror}") from error
    return {name.lower(): value for name, value in _LINE.findall(text)}


def _version_of(home: Path, named: str) -> str:
    """Return a version such as 3.12, from the name of the program, else from its only library folder."""
    match = _VERSION.search(named)
    if match:
        return f"{match[1]}.{match[2]}"
    found = {one.name.removeprefix("python") for one in home.glob("lib/python3.*") if one.is_dir()}
    if len(found) != 1:
        raise NotPython(f"{home}: no Python: {len(found)} folders lib/python3.* are in it, not one")
    return found.pop()


def _packages(home: Path, version: str) -> Iterator[Path]:
    """Yield the package folders. Debian's Python has other names, and uses /usr/local too."""
    above = (Path("/usr/local"), home) if home == _USR else (home,)
    for one in above:
        for name in ("site-packages", "dist-packages"):
            yield from _existing(one / f"lib/python{version}/{name}", one / f"lib64/python{version}/{name}")
    if home == _USR:
        yield from _existing(home / "lib/python3/dist-packages")


def _existing(*folders: Path) -> Iterator[Path]:
    seen: list[os.stat_result] = []
    for folder in folders:  # lib64 is a link to lib in most venvs
        if folder.is_dir() and not any(os.path.samestat(folder.stat(), one) for one in seen):
            seen.append(folder.stat())
            yield folder


def _added_by(folders: list[Path]) -> Iterator[Path]:
    """Yield the folders that .pth files add to the search path. Code lines in them are not run."""
    for folder in folders:
        for file in sorted(folder.glob("*.pth")):
            try:
                lines = bounded_bytes(file, _LARGEST_SETTING).decode("utf-8", "replace").splitlines()
            except OSError:
                continue
            for line in map(str.strip, lines):
                if line and not line.startswith(("#", "import ", "import\t")):
                    yield from _existing(folder / line)

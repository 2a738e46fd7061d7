"""Find the stock SGLang that is asked questions, and the Python that it is in, without running them."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runtime.sglang.releases import NEWEST
from sgl_tune.reading import bounded_bytes
from sgl_tune.servers.home import added_servers
from sgl_tune.servers.installed import Unclear, cuda_of, fingerprint_of, is_whole, packages_in, version_here

USUAL_GB = 7.5  # on disk, for a current release; `server add` prints the exact size
_OLDEST_PYTHON = (3, 10)
_CHANGED_BY_HAND = ("sglang", "sgl_kernel", "flashinfer")

Found = Literal["--server", "here", "added"]


@dataclass(frozen=True, slots=True)
class Server:
    """An environment in which SGLang can start. `folders`: its Python's search path. `packages`: the
    folder of them that has torch. `cuda`: the CUDA major version of torch. `found`: how it was found."""

    python: Path
    python_version: str
    folders: tuple[Path, ...]
    packages: Path
    sglang: str
    torch: str
    flashinfer: str | None
    cuda: int
    found: Found

    def fingerprint(self) -> str:
        """Return a digest that changes with the installed packages and with edits of SGLang's files."""
        walked = [folder / name for folder in self.folders for name in _CHANGED_BY_HAND]
        return fingerprint_of(list(packages_in(self.folders).values()), walked)


@dataclass(frozen=True, slots=True)
class NoServer:
    """Why no server can be asked, in one line, and what to do. `has_sglang`: a Python with SGLang was
    found, but it cannot be used."""

    why: str
    remedy: str
    has_sglang: bool = False


def find_server(option: str | None, release: str | None) -> Server | NoServer:
    """Return the server that `option` (--server: a Python or a venv) names. Without it, return this
    environment's SGLang, or else an added one: `release`, or the newest."""
    if option is not None:
        found = server_at(Path(option))
        if isinstance(found, NoServer) or release in (None, found.sglang):
            return found
        why = f"--server {found.python}: its SGLang is {found.sglang}, not {release}"
        return NoServer(why, f"name another server, or `sgl-tune server add {release}`")
    here = server_at(Path(sys.executable), "here") if sys.executable else None
    if isinstance(here, Server) and release in (None, here.sglang):
        return here
    if isinstance(here, NoServer) and here.has_sglang:
        return here
    for added in added_servers():
        if added.unusable is None and release in (None, added.release):
            return server_at(added.venv, "added")
    why = f"no SGLang{f' {release}' if release else ''} is here, and none was added"
    if isinstance(here, Server):
        why = f"the SGLang of this environment is {here.sglang}, not {release}"
    return NoServer(why, adding(release))


def adding(release: str | None) -> str:
    """Return how to get a server. An added server is asked by default, unless the core was chosen."""
    there = (one.release for one in added_servers() if one.unusable is None)
    if added := next((one for one in there if release in (None, one)), None):
        return f"SGLang {added} is added here and answers that: name it with --server {added}"
    if (here := version_here("sglang")) and release in (None, here):
        return f"SGLang {here} is installed here and answers that: leave out --server"
    command = f"sgl-tune server add {release or NEWEST.version}"
    return f"`{command}` ({USUAL_GB} GB on disk) or run this where SGLang is installed"


def server_at(path: Path, found: Found = "--server") -> Server | NoServer:
    """Return the server in a Python or a venv."""
    try:
        interpreter = interpreter_at(path)
        installed = packages_in(interpreter.folders)
        sglang, torch = installed.get("sglang"), installed.get("torch")
        if sglang is None or not is_whole(sglang, "sglang"):
            return NoServer(f"{path}: no SGLang is installed there", adding(None))
        whose = f"{path}: SGLang {sglang.version} is there,"
        if tuple(map(int, interpreter.version.split("."))) < _OLDEST_PYTHON:
            why = f"{whose} in a Python {interpreter.version}, which is too old"
            return NoServer(why, "give a Python of 3.10 or later", True)
        if torch is None or not is_whole(torch, "torch"):
            return NoServer(f"{whose} and no torch", "install the torch that this SGLang asks for", True)
        cuda = cuda_of(torch)
    except NotPython as error:
        return NoServer(str(error), "name a Python, or a venv, in which SGLang is installed")
    except Unclear as error:
        return NoServer(str(error), "install that package anew", True)
    if cuda is None:
        why = f"{whose} and its torch {torch.version} was built without CUDA"
        return NoServer(why, "install torch with CUDA; no GPU and no driver are needed", True)
    flashinfer = installed.get("flashinfer-python")
    return Server(
        interpreter.python,
        interpreter.version,
        interpreter.folders,
        torch.info.parent,
        sglang.version,
        torch.version,
        flashinfer.version if flashinfer else None,
        cuda,
        found,
    )


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

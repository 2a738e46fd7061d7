"""Find the stock SGLang that is asked questions, in a Python of its own, without running it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runtime.sglang.releases import NEWEST
from sgl_tune.servers.home import added_servers
from sgl_tune.servers.installed import Unclear, cuda_of, fingerprint_of, is_whole, packages_in, version_here
from sgl_tune.servers.interpreter import NotPython, interpreter_at

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
    """Return the server that `option` (--server: a Python or a venv) names; else this environment's
    SGLang; else an added one: `release`, or the newest."""
    if option is not None:
        return _of_release(server_at(Path(option)), release)
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


def _of_release(found: Server | NoServer, release: str | None) -> Server | NoServer:
    if isinstance(found, NoServer) or release in (None, found.sglang):
        return found
    why = f"--server {found.python}: its SGLang is {found.sglang}, not {release}"
    return NoServer(why, f"name another server, or `sgl-tune server add {release}`")

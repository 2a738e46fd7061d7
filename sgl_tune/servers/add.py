"""Install a release of SGLang as a server; no other code of sgl-tune downloads packages. A server is made
in its final folder, because the programs in a venv contain its path. Its mark, `server.json`, is written
when everything else is there and checked. Until then the folder holds the plan and the finished packages:
a package is finished when its RECORD is there, which pip writes last."""

import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sgl_tune.cli.out import Output
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.servers.home import MARK, Added, added_server
from sgl_tune.servers.installed import Unclear, packages_in
from sgl_tune.servers.pip import AGAIN, NoRelease, Pip, make_venv
from sgl_tune.servers.plan import Plan, Wheel, chosen_by_pip, chunks, compiler_for, read_plan, write_plan
from sgl_tune.servers.server import Server, server_at
from sgl_tune.units import human_bytes
from sgl_tune.writing import write_text

_OLDEST_PIP = "pip>=24,<27"  # releases with the internals that with_pip.py uses
_RESOLVE = ("install", "--dry-run", "--ignore-installed", "--only-binary=:all:", "--use-feature=fast-deps")
_INSTALL = ("install", "--no-deps", "--no-index", "--no-compile", "--ignore-installed")
_ROOM = 1.05  # for the file system's overhead and bytecode
_BYTECODE = 700_000_000
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Making:
    """A server that is being made. `lock`: the lock of the folder that holds all servers."""

    release: str
    folder: Path
    lock: int
    out: Output

    @property
    def venv(self) -> Path:
        return self.folder / "venv"

    @property
    def packages(self) -> Path:
        return self.venv / f"lib/python{_python()}/site-packages"

    @property
    def pip(self) -> Pip:
        return Pip(self.venv / "bin/python3", self.folder / "pip.log", self.lock)


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def planned(making: Making) -> Plan:
    """Return the wheels that pip chooses for this Python, or chose in an earlier attempt."""
    held = read_plan(making.folder / "plan.json")
    if held and (held.release, held.python) == (making.release, _python()) and making.packages.is_dir():
        return held
    making.folder.mkdir(mode=0o700, exist_ok=True)
    making.out.note(f"Asking pip what SGLang {making.release} needs; this takes a minute or two.")
    make_venv(making.venv, making.folder / "pip.log", making.lock)
    making.pip.run("uninstall", "--yes", "setuptools")  # in venvs until Python 3.12
    try:
        making.pip.run("install", "--upgrade", _OLDEST_PIP)
    except WorkFailed:
        making.out.note("pip could not be updated: it may download a release to learn its size")
    try:
        wheels = _chosen(making, f"sglang=={making.release}")
    except NoRelease:
        shutil.rmtree(making.folder)
        raise
    compiler = compiler_for({wheel.name: wheel.version for wheel in wheels})
    if compiler:
        parts = {wheel.name: wheel for wheel in _chosen(making, "--no-deps", *compiler)}
        wheels = [wheel for wheel in wheels if wheel.name not in parts] + list(parts.values())
    plan = Plan(making.release, _python(), tuple(_measured(making, wheels)))
    write_plan(making.folder / "plan.json", plan)
    return plan


def _chosen(making: Making, *requirements: str) -> list[Wheel]:
    report = making.folder / "report.json"
    making.pip.run(*_RESOLVE, *requirements, release=making.release, report=str(report))
    try:
        return chosen_by_pip(report)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorkFailed(f"{report}: pip's report cannot be used: {error}", AGAIN) from error
    finally:
        report.unlink(missing_ok=True)


def _measured(making: Making, wheels: list[Wheel]) -> list[Wheel]:
    told = making.pip.work("measure", {"urls": [wheel.url for wheel in wheels]})
    with making.out.progress("asking for sizes", len(wheels)) as progress:
        sized = []
        for wheel, sizes in zip(wheels, told, strict=True):
            sized.append(replace(wheel, **sizes))
            progress.advance()
    return sized


def missing(making: Making, plan: Plan) -> list[Wheel]:
    """Return the wheels that are not, or not completely, installed yet."""
    try:
        there = packages_in([making.packages])
    except Unclear as error:
        raise WorkFailed(str(error), f"`sgl-tune server remove {plan.release}`, then add it anew") from None
    done = {name: one.version for name, one in there.items() if (one.info / "RECORD").is_file()}
    return [wheel for wheel in plan.wheels if done.get(wheel.name) != wheel.version]


def needed_bytes(wheels: list[Wheel]) -> int:
    """Return the free disk that these wheels need, with the largest chunk of downloads, which are removed
    once installed."""
    kept = [wheel for wheel in wheels if not wheel.headers_only]
    largest = max((sum(wheel.size for wheel in chunk) for chunk in chunks(kept)), default=0)
    return int(sum(wheel.unpacked for wheel in kept) * _ROOM) + largest + _BYTECODE * bool(kept)


def check_disk(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        why = f"{folder}: {human_bytes(needed)} are needed there, {human_bytes(free)} are free"
        raise WorkFailed(why, "make room, or set SGL_TUNE_SERVERS to a folder on another disk")


def install(making: Making, plan: Plan) -> None:
    """Install the missing wheels, chunk after chunk."""
    left = missing(making, plan)
    kept = [wheel for wheel in left if not wheel.headers_only]
    files = making.folder / "wheels"
    files.mkdir(mode=0o700, exist_ok=True)
    total = sum(wheel.size for wheel in kept) // _MB
    with making.out.progress("MB downloaded and installed", total) as progress:
        done = told = 0
        for chunk in chunks(kept):
            request = {"folder": str(files), "wheels": [asdict(wheel) for wheel in chunk]}
            paths = []
            for line in making.pip.work("fetch", request):
                done += line.get("bytes", 0)
                progress.advance(done // _MB - told)
                told = done // _MB
                paths += [line["path"]] if "path" in line else []
            making.pip.run(*_INSTALL, *paths)
            shutil.rmtree(files)
            files.mkdir(mode=0o700)
    headers = [asdict(wheel) for wheel in left if wheel.headers_only]
    request = {"folder": str(files), "packages": str(making.packages), "wheels": headers}
    with making.out.progress("headers of libraries left out", len(headers)) as progress:
        for line in making.pip.work("headers", request) if headers else ():
            progress.advance(detail=line.get("name", ""))


def compile_bytecode(making: Making) -> None:
    """Compile all bytecode once. A started server may write nothing, and would compile at each start."""
    with making.out.progress("packages compiled to bytecode") as progress:
        for line in making.pip.work("compile", {"packages": str(making.packages)}):
            progress.advance(detail=line["name"])


def finish(making: Making, plan: Plan) -> Added:
    """Write the mark and return the server, which is usable from here on."""
    left = missing(making, plan)
    if left:
        raise WorkFailed(f"{left[0].name} {left[0].version} is not installed after all", AGAIN)
    found = server_at(making.venv, "added")
    if not isinstance(found, Server):
        raise WorkFailed(found.why, f"`sgl-tune server remove {making.release}`, then add it anew")
    shutil.rmtree(making.folder / "wheels", ignore_errors=True)
    mark = {
        "release": making.release,
        "python": found.python_version,
        "torch": found.torch,
        "flashinfer": found.flashinfer,
        "cuda": found.cuda,
        "bytes": bytes_below(making.folder),
        "left_out": [f"{wheel.name}=={wheel.version}" for wheel in plan.left_out],
        "nvcc": (making.packages / f"nvidia/cu{found.cuda}/bin/nvcc").is_file(),
    }
    write_text(making.folder / MARK, json.dumps(mark, indent=2) + "\n")
    return added_server(making.release, making.folder.parent)


def bytes_below(folder: Path) -> int:
    files = (Path(above) / name for above, _, names in os.walk(folder) for name in names)
    return sum(file.lstat().st_blocks * 512 for file in files)


def refuse_planted(folder: Path) -> None:
    """Refuse a file or a link at the server's place, because `server add` makes neither."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder} is no folder that `server add` made", "remove it yourself")
    if folder.is_dir():
        planted = next((one.path for one in os.scandir(folder) if one.is_symlink()), None)
        if planted:
            raise UsageError(f"{planted} is a link, and none is followed there", "remove it yourself")

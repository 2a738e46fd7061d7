"""`sgl-tune server modules`: list, take or build the compiled modules whose host code a start needs."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from runtime.ghost.gpus import gpus
from runtime.ghost.halves import keep_half, modules_of, pack, unpack
from runtime.ghost.library import NotALibrary
from runtime.ghost.trust import Untrusted
from sgl_tune.asking.kept import cache_folder
from sgl_tune.cli.format import Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.cli.table import columns_of
from sgl_tune.compile.host_halves import Wanted, build_halves
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.servers.server import NoServer, find_server
from sgl_tune.units import count

_MOST_PLACES = 200_000
_COLUMNS = columns_of("MODULE", "STATE", "WHERE/", "WHY")


def server_modules(
    names: Annotated[list[str] | None, Argument(metavar="[MODULE]...", help="Only these modules.")] = None,
    server: Annotated[
        str | None,
        Option(
            "--server", metavar="PATH", help="A Python or a venv with SGLang. Default: as for mem-report."
        ),
    ] = None,
    gpu: Annotated[str, Option("--gpu", metavar="h100|h200|b200|...", help="The modules' GPU.")] = "h200",
    source: Annotated[
        Path | None,
        Option(
            "--from",
            metavar="PATH",
            help="Take modules from here: FlashInfer's cache, an image's files, an unpacked bundle, NAME.so,"
            " NAME.so.xz.",
        ),
    ] = None,
    to: Annotated[
        Path | None, Option("--to", metavar="FOLDER", help="Write host code of modules here, as NAME.so.xz.")
    ] = None,
    build: Annotated[bool, Option("--build", help="Build the host code of these modules.")] = False,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """List the compiled FlashInfer modules that a start on a simulated GPU (the ghost) can use.

    Such a start runs a module's host code and needs none of its GPU code. `real`: the server has this module.
    `half`: sgl-tune keeps its host code. `none`: the module is missing, and answers that need it are not
    exact. --from takes the modules of a serving machine or image. --build compiles for minutes, and refuses
    builds that would take hours. Modules are code: only those that no other user may write are used.

    Example: sgl-tune server modules --gpu h200 --from ~/.cache/flashinfer
    """
    out = Output(sink(format, quiet))
    wanted = _wanted(server, gpu)
    taken = _take(wanted, source, names or ()) if source is not None else []
    if build and not names:
        raise UsageError("--build needs the names of modules", "an answer that is not exact names them")
    built = build_halves(wanted, names or (), out) if build else []
    rows = list(_rows(wanted, names or ()))
    packed = _pack(rows, to) if to is not None else []

    def human() -> None:
        if source is not None:
            out.line(f"{count(len(taken), 'module')} taken from {source}.")
        for one in built:
            took = f"built in {one.seconds / 60:.1f} min"
            out.line(f"{one.name}: {took if one.state == 'built' else f'{one.state}: {one.why}'}.")
        if to is not None:
            out.line(f"{count(len(packed), 'file')} written to {to}.")
        cells = [[row["name"], row["state"], row["path"] or "-", row["why"] or ""] for row in rows]
        out.table(_COLUMNS, cells)

    data = {
        "server": str(wanted.server.python),
        "flashinfer": wanted.server.flashinfer,
        "gpu": gpu,
        "modules": rows,
        "taken": taken,
        "packed": packed,
        "built": [{"name": one.name, "state": one.state, "seconds": round(one.seconds, 1)} for one in built],
    }
    out.result(data, human, quiet=(row["path"] for row in rows if row["state"] in ("real", "half")))
    failed = next((one for one in built if one.state != "built"), None)
    if failed is not None:
        raise WorkFailed(f"{failed.name} was not built: {failed.why}")


def _wanted(server: str | None, gpu: str) -> Wanted:
    found = find_server(server, None)
    if isinstance(found, NoServer):
        raise UsageError(found.why, found.remedy)
    if found.flashinfer is None:
        raise UsageError(f"the server {found.python} has no FlashInfer", "name another with --server")
    if gpu not in gpus():
        raise UsageError(f"--gpu {gpu} is not known", f"one of {', '.join(gpus())}")
    return Wanted(found, gpus()[gpu], cache_folder())


def _rows(wanted: Wanted, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    server = wanted.server
    known = modules_of(server.packages, wanted.gpu.arch, cuda=server.cuda, root=wanted.root)
    found = {one.name: one for one in known}
    always = [] if names else [f"fused_moe_{wanted.gpu.arch}"]
    for name in sorted({*(names or found), *always}):
        one = found.get(name)
        yield {
            "name": name,
            "state": one.state if one else "none",
            "path": str(one.path) if one else None,
            "why": (one.why or None) if one else None,
        }


def _take(wanted: Wanted, source: Path, names: Sequence[str]) -> list[str]:
    """Keep the host code of the modules at `source` that fit the server's FlashInfer and the GPU's kind."""
    taken = []
    for name, path in _offered(source, wanted):
        if names and name not in names:
            continue
        keep = unpack if path.suffix == ".xz" else keep_half
        try:
            keep(path, wanted.kind, name, wanted.root)
        except (NotALibrary, Untrusted) as error:
            raise UsageError(f"{path}: {error}", "name another --from") from error
        taken.append(name)
    if not taken:
        kind = f"of FlashInfer {wanted.server.flashinfer} for sm{wanted.gpu.arch}"
        raise UsageError(f"{source} has no module {kind}", "name FlashInfer's cache, or a file NAME.so")
    return taken


def _offered(source: Path, wanted: Wanted) -> Iterator[tuple[str, Path]]:
    """Yield name and path of each usable module. A file always counts; below a folder, the path must fit."""
    if source.is_file():
        yield source.name.removesuffix(".xz").removesuffix(".so"), source
        return
    if not source.is_dir():
        raise UsageError(f"--from {source} is not there")
    seen = 0
    for folder, inner, files in os.walk(source):
        seen += len(inner) + len(files)
        if seen > _MOST_PLACES:
            raise UsageError(f"--from {source} holds more than {_MOST_PLACES} files", "name a folder in it")
        here = Path(folder)
        if f"{here.name}.so" in files and _fits(here, wanted):
            yield here.name, here / f"{here.name}.so"
        elif here.parts[-4:-1] == ("halves", *wanted.kind.folder(here).parts[-2:]):
            yield from ((here.name, here / file) for file in files if file.endswith(".so"))


def _fits(folder: Path, wanted: Wanted) -> bool:
    """Whether `folder` is VERSION/ARCH/cached_ops/NAME, or is in a package beside this FlashInfer."""
    above = folder.parents
    if above[0].name == "cached_ops":
        arch = above[1].name.rstrip("abcdefghijklmnopqrstuvwxyz")
        return (above[2].name, arch) == (wanted.server.flashinfer, wanted.gpu.arch)
    for site in above[1:4]:
        for info in site.glob("flashinfer_*.dist-info"):
            version = info.name.removesuffix(".dist-info").partition("-")[2].partition("+")[0]
            if version == wanted.server.flashinfer:
                return True
    return False


def _pack(rows: Sequence[dict[str, Any]], folder: Path) -> list[str]:
    """Write the kept host code of each module to `folder`; return the files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        halves = [row for row in rows if row["state"] == "half"]
        for row in halves:
            pack(Path(row["path"]), folder / f"{row['name']}.so.xz")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}", "name another --to") from error
    return [str(folder / f"{row['name']}.so.xz") for row in halves]

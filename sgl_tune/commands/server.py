"""`sgl-tune server`: keep releases of SGLang here, separate from every other environment."""

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

from sgl_tune.cli.format import Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.cli.table import columns_of
from sgl_tune.commands.server_modules import server_modules as server_modules
from sgl_tune.errors import Ended
from sgl_tune.servers.add import (
    Making,
    check_disk,
    compile_bytecode,
    finish,
    install,
    missing,
    needed_bytes,
    planned,
    refuse_planted,
)
from sgl_tune.servers.home import (
    Added,
    added_server,
    added_servers,
    check_release,
    locked,
    remove_server,
    servers_home,
    sweep,
)
from sgl_tune.servers.plan import Plan, Wheel
from sgl_tune.servers.server import NoServer, Server, server_at
from sgl_tune.units import count, human_bytes

Release = Annotated[str, Argument(metavar="RELEASE", help="A release of SGLang: 0.5.23.")]
Yes = Annotated[bool, Option("-y", "--yes", help="Do not ask.")]


def server_list(format: FormatOption = Format.human, quiet: QuietOption = False) -> None:
    """List this environment's SGLang and the added releases, and say which of them can be used.

    Only files are read; no server is started.

    Example: sgl-tune server list
    """
    out = Output(sink(format, quiet))
    rows = [*_here(), *(_row(added) for added in added_servers())]
    columns = columns_of("SGLANG", "PYTHON", "TORCH", "FLASHINFER", "CUDA", ">SIZE", "PATH/", "USABLE")

    def human() -> None:
        if rows:
            out.table(columns, map(_cells, rows))
        else:
            out.line("No SGLang is here. `sgl-tune server add RELEASE` adds one.")

    data = {"folder": str(servers_home()), "servers": rows}
    out.result(data, human, quiet=(row["path"] for row in rows if not row["unusable"]))


def _cells(row: dict[str, Any]) -> list[str]:
    shown = [row[name] or "-" for name in ("release", "python", "torch", "flashinfer", "cuda")]
    size = human_bytes(row["bytes"]) if row["bytes"] else "-"
    return [*shown, size, row["path"], row["unusable"] or "yes"]


def _here() -> list[dict[str, Any]]:
    found = server_at(Path(sys.executable), "here") if sys.executable else None
    if isinstance(found, Server):
        return [_told(found, found.sglang, found.python.parents[1], None, None, "here")]
    if found and found.has_sglang:
        return [_told(None, None, Path(sys.prefix), None, found.why, "here")]
    return []


def _row(added: Added) -> dict[str, Any]:
    size, why = added.mark.get("bytes"), added.unusable
    found = server_at(added.venv, "added") if why is None else None
    if isinstance(found, Server) and found.sglang != added.release:
        found = NoServer(f"its SGLang is {found.sglang}", "")
    if isinstance(found, NoServer):
        why, found = f"{found.why}; remove it and add it anew", None
    return _told(found, added.release, added.folder, size if isinstance(size, int) else None, why, "added")


def _told(
    server: Server | None, release: str | None, path: Path, size: int | None, why: str | None, found: str
) -> dict[str, Any]:
    fields = {"python": "python_version", "torch": "torch", "flashinfer": "flashinfer", "cuda": "cuda"}
    known = {name: getattr(server, field, None) for name, field in fields.items()}
    place = {"bytes": size, "path": str(path), "found": found, "unusable": why}
    return {"release": release, **known, **place}


def server_add(
    release: Release,
    dry_run: Annotated[bool, Option("--dry-run", help="Only print how large it is.")] = False,
    yes: Yes = False,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Download a release of SGLang and its dependencies into a Python environment of their own.

    pip chooses and downloads the packages, with your own pip configuration. NVIDIA's libraries are left out,
    since no GPU is used; their headers and the CUDA compiler are included. The server is kept in
    $SGL_TUNE_SERVERS, else $XDG_DATA_HOME/sgl-tune/servers, else ~/.local/share/sgl-tune/servers. An
    interrupted download continues when the command is run again.

    Example: sgl-tune server add 0.5.23
    """
    out = Output(sink(format, quiet))
    home = servers_home()
    folder = home / check_release(release)
    with locked(home) as lock:
        sweep(home)
        refuse_planted(folder)
        there = added_server(release, home)
        if there.unusable is None:
            out.note(f"SGLang {release} was added before.")
            _show_added(out, there, there.mark.get("bytes", 0), False)
            return
        making = Making(release, folder, lock, out)
        try:
            plan = planned(making)
            _add(making, plan, dry_run, yes)
        except KeyboardInterrupt:
            out.note(f"The finished part is kept: `sgl-tune server add {release}` goes on with it.")
            raise


def _add(making: Making, plan: Plan, dry_run: bool, yes: bool) -> None:
    out, left = making.out, missing(making, plan)
    begun = len(left) < len(plan.wheels)
    says = _said(making, plan, left)
    if dry_run:
        _drop(making, begun)
        _show_size(out, plan, says)
        return
    out.note(f"{says}.")
    check_disk(making.folder, needed_bytes(left))
    if not yes and not out.confirm("Add it?"):
        _drop(making, begun)
        out.note("Nothing was added.")
        raise Ended(0)
    install(making, plan)
    compile_bytecode(making)
    added = finish(making, plan)
    _show_added(out, added, added.mark["bytes"], True)


def _said(making: Making, plan: Plan, left: list[Wheel]) -> str:
    kept = [wheel for wheel in left if not wheel.headers_only]
    download = human_bytes(sum(wheel.size for wheel in kept))
    unpacked = human_bytes(sum(wheel.unpacked for wheel in kept))
    spared = human_bytes(sum(wheel.unpacked for wheel in plan.left_out))
    return (
        f"SGLang {plan.release} for Python {plan.python}: {download} to download in"
        f" {count(len(kept), 'package')}, {unpacked} on disk in {making.folder};"
        f" {spared} of NVIDIA's libraries are left out"
    )


def _drop(making: Making, begun: bool) -> None:
    """Remove the folder of a server that was not added, unless an earlier download left packages in it."""
    if not begun:
        shutil.rmtree(making.folder)


def _show_size(out: Output, plan: Plan, says: str) -> None:
    sizes = {"bytes": sum(one.unpacked for one in plan.kept)}
    sizes["download_bytes"] = sum(one.size for one in plan.kept)
    left_out = [f"{one.name}=={one.version}" for one in plan.left_out]
    data = {"release": plan.release, "path": None, "added": False, **sizes, "left_out": left_out}
    out.result(data, lambda: out.line(f"{says}."), quiet=())


def _show_added(out: Output, added: Added, size: int, new: bool) -> None:
    sizes = {"bytes": size, "download_bytes": 0, "left_out": list(added.mark.get("left_out", ()))}
    data = {"release": added.release, "path": str(added.folder), "added": new, **sizes}
    says = f"SGLang {added.release} is in {added.folder}, {human_bytes(size)}."
    out.result(data, lambda: out.line(says), quiet=[str(added.folder)])
    if not added.mark.get("nvcc"):
        out.warn("no package has an nvcc for this CUDA: only the system's nvcc can build modules")


def server_remove(
    release: Release, yes: Yes = False, format: FormatOption = Format.human, quiet: QuietOption = False
) -> None:
    """Remove a server that was added.

    Example: sgl-tune server remove 0.5.23
    """
    out = Output(sink(format, quiet))
    home = servers_home()
    folder = home / check_release(release)
    with locked(home):
        sweep(home)
        size = added_server(release, home).mark.get("bytes", 0)
        if folder.is_dir() and not folder.is_symlink() and not yes:
            what = human_bytes(size) if size else "not finished"
            if not out.confirm(f"Remove SGLang {release} ({what}) from {folder}?"):
                out.note("Nothing was removed.")
                raise Ended(0)
        remove_server(release, home)
    data = {"release": release, "path": str(folder), "bytes": size}
    out.result(data, lambda: out.line(f"Removed SGLang {release}."), quiet=[str(folder)])

"""`sgl-tune relocate`: adapt a folder of stores to the path under which a server finds it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from sgl_tune.cli.format import EnvironmentFormat, EnvironmentFormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.cli.table import columns_of
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.stores.find import stores_below
from sgl_tune.stores.places import export_lines, kubernetes_lines, place_named, variables
from sgl_tune.stores.relocate import Mended, mend
from sgl_tune.units import count

_COLUMNS = columns_of("STORE", ">CHANGED", ">RIGHT", "WHAT", "WHERE/")


def relocate(
    root: Annotated[
        Path | None, Argument(metavar="ROOT", help="The stores' folder. Default: SGLang's.")
    ] = None,
    at: Annotated[
        str | None,
        Option("--at", metavar="PATH", help="The folder's path as the server sees it, if not its path here."),
    ] = None,
    sglang_version: Annotated[
        str | None, Option("--sglang-version", metavar="X.Y.Z", help="The server's release.")
    ] = None,
    scratch: Annotated[
        str | None,
        Option("--scratch", metavar="PATH", help="If ROOT is read-only: a folder that the server may write."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only print what would change.")] = False,
    format: EnvironmentFormatOption = EnvironmentFormat.human,
    quiet: QuietOption = False,
) -> None:
    """Make stores that were copied, unpacked or mounted elsewhere work there, without compiling again.

    This rewrites the absolute paths in Triton's group files, adds a small package through which FlashInfer
    loads its modules without ninja or file times, and creates the files that libraries create at first use.
    Run it once while the folder is writable; then the folder may be mounted read-only. quiet prints the
    variables that the server needs as `export` lines; kubernetes prints them as a container's `env:`.

    Example: sgl-tune relocate /srv/root --at /mnt/root
    """
    out = Output(sink(format, quiet))
    root = root or default_cache_dir()
    if not root.is_dir():
        raise UsageError(f"{root}: no such folder", "name the folder that holds the stores")
    place = place_named("--at", at) if at is not None else str(root.absolute())
    scratch = place_named("--scratch", scratch) if scratch is not None else None
    stored = stores_below(out, root)
    with out.progress("relocating") as progress:
        done = mend(stored, root, place, dry_run, progress.advance, out.warn)
    needed, doubt = variables(sglang_version, place, done.stores(stored), scratch)
    if doubt:
        out.warn(doubt)
    stores = [{**one._asdict(), "path": str(one.path), "unmended": [*one.unmended]} for one in done.mended]
    out.result(
        {
            "root": str(root),
            "place": place,
            "dry_run": dry_run,
            "stores": stores,
            "environment": needed,
        },
        human=lambda: _show(out, done.mended, needed, dry_run),
        quiet=kubernetes_lines(needed) if format is EnvironmentFormat.kubernetes else export_lines(needed),
    )
    for one in done.mended:
        for text in one.unmended[:3]:
            out.warn(text)
    if done.failed:
        raise WorkFailed(f"{count(done.failed, 'store')} could not be made right", "see the warnings above")


def _show(out: Output, mended: Sequence[Mended], needed: dict[str, str], dry_run: bool) -> None:
    rows = [(one.store, one.changed, one.right, one.what, one.path) for one in mended]
    if not rows:
        out.line("No store here needs it.")
        return
    out.table(_COLUMNS, rows)
    out.line()
    changed = sum(one.changed for one in mended)
    out.line(f"{'Would change' if dry_run else 'Changed'} {changed:,}. A server finds them with:")
    for line in export_lines(needed):
        out.line(line, indent=2)

"""What was compiled beforehand, for a person; and what would be."""

from __future__ import annotations

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import Column
from sgl_tune.compile.everything import Filled
from sgl_tune.compile.goal import Modules
from sgl_tune.compile.server_start import Started
from sgl_tune.stores.places import export_lines
from sgl_tune.units import count

_COLUMNS = (Column("MODULE", path=True), Column("IT IS"), Column("SECONDS", right=True))
_STATES = {
    "built": "built now",
    "there": "there already",
    "offered": "in an installed package",
    "refused": "not made here",
    "failed": "not built",
}


def show_filled(out: Output, filled: Filled) -> None:
    built = [one for one in filled.built if one.state == "built"]
    took = max((one.seconds for one in built), default=0.0)
    longest = f", the longest in {took:.0f} s" if built else ""
    out.line(f"{count(len(built), 'module')} compiled in {filled.root}{longest}", style="bold")
    if filled.built:
        out.table(_COLUMNS, [(one.name, _STATES[one.state], f"{one.seconds:.0f}") for one in filled.built])
    if filled.started:
        _show_start(out, filled.started)
    else:
        _show_gaps(out, filled.unknown)
    for what in filled.left:
        out.line(f"not here: {what}", indent=2)
    out.line("A server finds it with:")
    for line in export_lines(filled.environment):
        out.line(line, indent=2)


def _show_start(out: Output, started: Started) -> None:
    ranks = count(started.ranks, "rank")
    out.line(f"its server's own start, {ranks}: ready after {started.seconds:.0f} s", indent=2)
    if started.compiled:
        out.line(f"compiled: {', '.join(started.compiled)}", indent=4)
    for store, files in started.written.items():
        out.line(f"{store}: {count(files, 'file')} written", indent=4)


def show_modules(out: Output, modules: Modules) -> None:
    out.line(f"compiles {count(len(modules.known), 'module')} of FlashInfer", indent=2)
    for module in modules.known:
        out.line(module.name, indent=4)
    _show_gaps(out, modules.unknown)


def _show_gaps(out: Output, unknown: tuple[str, ...]) -> None:
    for what in unknown:
        out.line(f"{what} is loaded, but how FlashInfer makes it is not known", "yellow", indent=2)

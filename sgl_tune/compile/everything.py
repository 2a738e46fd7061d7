"""Compile everything that a server's start compiles, under one root, and make it usable from there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import columns_of
from sgl_tune.compile.bake import Baked, show_baked
from sgl_tune.compile.build import Built
from sgl_tune.compile.goal import Goal, Modules
from sgl_tune.compile.modules import compile_modules
from sgl_tune.compile.server_start import Started, start, why_not_started
from sgl_tune.compile.toolkit import Toolkit
from sgl_tune.deployment.versions import Gpu
from sgl_tune.errors import WorkFailed
from sgl_tune.processes.scratch import scratch
from sgl_tune.stores.find import find_stores
from sgl_tune.stores.places import export_lines, variables
from sgl_tune.stores.relocate import mend
from sgl_tune.units import count

_COLUMNS = columns_of("MODULE/", "IT IS", ">SECONDS")
_STATES = {
    "built": "built now",
    "there": "there already",
    "offered": "in an installed package",
    "refused": "not made here",
    "failed": "not built",
}


@dataclass(frozen=True, slots=True)
class Filled:
    """The filled root. `left`: what a start still compiles itself, as far as known. `unknown`: modules
    that it loads and whose build was not seen."""

    root: Path
    built: tuple[Built, ...]
    baked: Baked | None
    unknown: tuple[str, ...]
    started: Started | None
    start_failed: str | None
    left: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def failed(self) -> list[Built]:
        return [one for one in self.built if one.state == "failed"]

    @property
    def exit_code(self) -> int:
        if self.failed or self.start_failed or (self.baked and (self.baked.failed or self.baked.ended)):
            return WorkFailed.exit_code
        gaps = self.unknown or [one for one in self.built if one.state == "refused"]
        return int(bool(gaps) and self.started is None)

    def to_json(self) -> dict[str, Any]:
        return {
            "root": str(self.root),
            "modules": [{**asdict(one), "seconds": round(one.seconds, 3)} for one in self.built],
            "kernels": self.baked.to_json() if self.baked else None,
            "unknown": list(self.unknown),
            "start": self.started.to_json() if self.started else None,
            "start_failed": self.start_failed,
            "left": list(self.left),
            "environment": dict(self.environment),
        }


def compile_all(goal: Goal, toolkit: Toolkit, out: Output) -> list[Built]:
    """Compile the modules, before the steps that load them."""
    goal.cache_dir.mkdir(parents=True, exist_ok=True)
    with scratch() as private:
        return compile_modules(goal, goal.modules.known, toolkit, private, out)


def finish(
    goal: Goal, timeout: float, built: Sequence[Built], baked: Baked | None, here: Sequence[Gpu], out: Output
) -> Filled:
    """Start the server itself, if possible on this machine, and then make the root movable."""
    why_not = why_not_started(goal, here)
    started = failed = None
    if why_not is None and baked is None:
        try:
            started = start(goal, goal.variables_while_filling, timeout, out)
        except WorkFailed as error:  # compiled modules stay useful
            failed = why_not = error.message
            out.error(f"{goal.name}: {error.message}", error.remedy)
    environment = _made_right(goal, out)
    left = () if started else tuple(_left(goal, baked, why_not))
    unknown = goal.modules.unknown
    return Filled(goal.cache_dir, tuple(built), baked, unknown, started, failed, left, environment)


def _made_right(goal: Goal, out: Output) -> dict[str, str]:
    root = goal.cache_dir
    stored = find_stores(root, lambda error: out.warn(f"{error.filename}: {error.strerror}"))
    with out.progress("relocating") as progress:
        done = mend(stored, root, str(root.absolute()), False, progress.advance, out.warn)
    if done.failed:
        raise WorkFailed(f"{root}: not every store could be made right", "see the warnings above")
    return variables(goal.sglang, str(root.absolute()), done.stores(stored))[0]


def _left(goal: Goal, baked: Baked | None, why_not: str | None) -> Iterator[str]:
    if baked is not None and goal.tunes:
        yield "tactics, which need a GPU"
    if baked is None:
        yield f"what its own start compiles beside, SGLang's kernels, Triton's, tvm-ffi's bridge: {why_not}"


def show_filled(out: Output, filled: Filled) -> None:
    built = [one for one in filled.built if one.state == "built"]
    took = max((one.seconds for one in built), default=0.0)
    longest = f", the longest in {took:.0f} s" if built else ""
    out.line(f"{count(len(built), 'module')} compiled in {filled.root}{longest}", style="bold")
    if filled.built:
        out.table(_COLUMNS, [(one.name, _STATES[one.state], f"{one.seconds:.0f}") for one in filled.built])
    if filled.baked:
        show_baked(out, filled.baked)
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

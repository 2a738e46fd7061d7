"""Compile everything that a server's start compiles, under one root, and make it usable from there. Where
FlashInfer's modules are not all, the server itself is started once, with dummy weights, and stopped when it
is ready."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runtime.baking.toolkits import program_path
from sgl_tune.asking.question import value_of
from sgl_tune.cli.out import Output
from sgl_tune.cli.table import columns_of
from sgl_tune.compile.bake import Baked, show_baked
from sgl_tune.compile.build import Built
from sgl_tune.compile.goal import Goal, Modules
from sgl_tune.compile.modules import compile_modules
from sgl_tune.compile.toolkit import Toolkit
from sgl_tune.deployment.versions import Gpu
from sgl_tune.errors import WorkFailed
from sgl_tune.processes.command import safe_environment
from sgl_tune.processes.scratch import scratch
from sgl_tune.start_report.report import StartReport
from sgl_tune.start_report.running import start_and_stop
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
_LOOPBACK = "127.0.0.1"
_MEETING = ("--dist-init-addr", "--nccl-init-addr")


@dataclass(frozen=True, slots=True)
class Started:
    """The result of the server's start. `compiled`: modules in its report. `written`: files per store."""

    seconds: float
    ranks: int
    compiled: tuple[str, ...]
    written: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}


def start(goal: Goal, variables: Mapping[str, str], silence: float, out: Output) -> Started:
    words = server_words(goal)
    path = {"PATH": program_path(os.environ)}
    environment = {**safe_environment(), **goal.environment, **path, **variables}
    with out.progress("starting its server with dummy weights") as progress:
        report = start_and_stop(words, environment, silence, lambda doing: progress.advance(0, doing))
    if not report.ready:
        way = f"`sgl-tune start-report -- {' '.join(words[:3])} ...` shows its output"
        raise WorkFailed(f"its server did not get ready: {_last_words(report)}", way)
    written = {one.store: one.files for one in report.written or ()}
    return Started(report.wall_seconds, report.ranks, report.compiled, written)


def _last_words(report: StartReport) -> str:
    word = report.failure or next(iter(report.last_words), None)
    stands = f"it stands in {report.stands_in}" if report.stands_in else "it said nothing"
    return word.text if word is not None else stands


def why_not_started(goal: Goal, here: Sequence[Gpu]) -> str | None:
    """Return why the server cannot be started on this machine, or None if it can."""
    if goal.is_alone is not None:
        return goal.is_alone
    if len(here) < goal.ranks:
        return f"it has {goal.ranks} ranks, and {len(here)} GPUs are here"
    if here[0].arch != goal.arch:
        return f"it is for {goal.arch}, and the GPUs here are {here[0].arch}"
    return None


def server_words(goal: Goal) -> list[str]:
    """Return the server's command. Our flags come last, because the last of two equal flags counts."""
    own = ["--load-format", "dummy", "--host", _LOOPBACK, "--port", str(_free_port())]
    arguments = goal.arguments
    if int(arguments.get("dp_size") or 1) > 1 and not arguments.get("enable_dp_attention"):
        own += ["--dp-size", "1"]  # replicas are equal, so one is enough
    if value_of(goal.words, _MEETING) is not None:
        own += [_MEETING[0], f"{_LOOPBACK}:{_free_port()}"]
    return [str(goal.python), "-m", "sglang.launch_server", *goal.words, *own]


def _free_port() -> int:
    """Return a free port. SGLang also uses ports after it; the system's free ports are high numbers."""
    with socket.socket() as asker:
        asker.bind((_LOOPBACK, 0))
        return int(asker.getsockname()[1])


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
    left = ["tactics, which need a GPU"] if baked is not None and goal.tunes else []
    if baked is None and started is None:
        beside = "what its own start compiles beside, SGLang's kernels, Triton's, tvm-ffi's bridge"
        left = [f"{beside}: {why_not}"]
    unknown = goal.modules.unknown
    return Filled(goal.cache_dir, tuple(built), baked, unknown, started, failed, tuple(left), environment)


def _made_right(goal: Goal, out: Output) -> dict[str, str]:
    root = goal.cache_dir
    stored = find_stores(root, lambda error: out.warn(f"{error.filename}: {error.strerror}"))
    with out.progress("relocating") as progress:
        done = mend(stored, root, str(root.absolute()), False, progress.advance, out.warn)
    if done.failed:
        raise WorkFailed(f"{root}: not every store could be made right", "see the warnings above")
    return variables(goal.sglang, str(root.absolute()), done.stores(stored))[0]


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

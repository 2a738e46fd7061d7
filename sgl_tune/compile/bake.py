"""Compile a start's kernels without a GPU: its ranks start on one that is not there, and compile for real."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from runtime.baking.baking import COMPILERS, Baking
from runtime.record.events import Event
from runtime.sglang.tactics import Tactics
from sgl_tune.cli.out import Output
from sgl_tune.cli.table import columns_of
from sgl_tune.compile.build import cause
from sgl_tune.compile.goal import Goal
from sgl_tune.compile.modules import usual_jobs
from sgl_tune.compile.toolkit import Toolkit
from sgl_tune.recorded.asked import Asked
from sgl_tune.units import count

_COLUMNS = columns_of("STORE", ">KERNELS", ">CPU SECONDS")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Kernel:
    """A place where a start compiles. `seconds`: of CPU, few if a store had it. `why`: it was not made."""

    store: str
    name: str
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Baked:
    """What starts on the simulated GPU compiled. `ended`: how a start ended that did not become ready."""

    kernels: tuple[Kernel, ...]
    ended: str | None

    @property
    def failed(self) -> list[Kernel]:
        return [one for one in self.kernels if one.why]

    def to_json(self) -> dict[str, Any]:
        return {"kernels": [asdict(one) for one in self.kernels], "ended": self.ended}


def bake(asked: Asked, ranks: Sequence[int], goal: Goal, toolkit: Toolkit, out: Output) -> Baked:
    """Start these ranks, one after the other. What is in the root already is not compiled again."""
    root = goal.cache_dir.absolute()
    root.mkdir(parents=True, exist_ok=True)
    chosen = {name: os.environ[name] for name in COMPILERS if os.environ.get(name)}
    stores = goal.variables_while_filling
    baking = Baking(root, toolkit.home, toolkit.links, stores, chosen, usual_jobs())
    ended, question = None, replace(asked.question, tactics=Tactics({}, tiles=asked.tiles))
    kernels: list[Kernel] = []
    with out.progress("compiling kernels on a simulated GPU") as progress:

        def listener(event: Event) -> None:
            if event["event"] != "baked":
                return progress.advance(0)
            why = cause(event["why"].encode().splitlines()) if event["why"] else ""
            kernels.append(Kernel(event["store"], event["name"], event["seconds"], why))
            progress.advance(1, event["name"].rpartition(".")[2])

        for rank in ranks:
            end = asked.answers.bake(replace(question, rank=rank), baking, listener).ending
            if end.how != "ready":
                ended = f"rank {rank} ended in {end.phase}: {end.text or end.how}"
    return Baked(tuple(kernels), ended)


def show_baked(out: Output, baked: Baked) -> None:
    kernels = count(len(baked.kernels), "kernel")
    out.line(f"{kernels} of its start compiled, on a simulated GPU", style="bold")
    seconds: dict[str, list[float]] = {}
    for one in baked.kernels:
        seconds.setdefault(one.store, []).append(one.seconds)
    out.table(_COLUMNS, [(store, len(spent), f"{sum(spent):.0f}") for store, spent in seconds.items()])
    for why, times in Counter(one.why for one in baked.failed).most_common(_SHOWN):
        out.line(f"not compiled: {count(times, 'kernel')}: {why}", "red", indent=2)
    if baked.ended is not None:
        out.line(f"what comes later in its start is not compiled: {baked.ended}", "red", indent=2)

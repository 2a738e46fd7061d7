"""Compile FlashInfer's modules that a server loads, under a root, and report the result of each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from sgl_tune.cli.out import Output
from sgl_tune.compile.build import Built, Task, build
from sgl_tune.compile.generate import ASK, DONE, READY, REFUSED
from sgl_tune.compile.goal import Goal, Module
from sgl_tune.compile.toolkit import Toolkit, find_tool, program_path
from sgl_tune.errors import WorkFailed
from sgl_tune.processes.command import Python
from sgl_tune.processes.crew import Crew
from sgl_tune.processes.scratch import Scratch

_COMPILER_BYTES = 4 << 30  # the memory for one of CUTLASS's larger sources
_GENERATOR = "sgl_tune.compile.generate"


def compile_modules(
    goal: Goal,
    modules: Sequence[Module],
    toolkit: Toolkit,
    scratch: Scratch,
    out: Output,
) -> list[Built]:
    find_tool("ninja", os.environ)
    find_tool("c++", os.environ)
    environment = _environment(goal, toolkit, scratch)
    tasks, aside = _asked(goal, modules, environment, scratch, out)
    built = build(tasks, usual_jobs(), environment, scratch, out)
    order = {module.name: number for number, module in enumerate(modules)}
    return sorted((*aside, *built), key=lambda one: order[one.name])


def usual_jobs() -> int:
    """Return the number of compilers for these cores and this memory, or FlashInfer's own $MAX_JOBS."""
    asked = os.environ.get("MAX_JOBS", "")
    if asked.isascii() and asked.isdigit() and int(asked[:6]) > 0:
        return int(asked[:6])
    memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(len(os.sched_getaffinity(0)), memory // _COMPILER_BYTES))


def _environment(goal: Goal, toolkit: Toolkit, scratch: Scratch) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "FLASHINFER_DISABLE_JIT"}
    return {
        **kept,
        **toolkit.environment(os.environ),
        "PATH": program_path(os.environ),
        "TMPDIR": str(scratch.folder),
        "FLASHINFER_WORKSPACE_BASE": str(goal.cache_dir.absolute()),
        "FLASHINFER_CUDA_ARCH_LIST": arch_list(goal.arch),
    }


def arch_list(arch: str) -> str:
    """Return `sm90` as FlashInfer's variable spells it. FlashInfer adds an architecture's letter itself."""
    digits = arch.removeprefix("sm")
    return f"{digits[:-1]}.{digits[-1]}"


def _asked(
    goal: Goal, modules: Sequence[Module], environment: Mapping[str, str], scratch: Scratch, out: Output
) -> tuple[list[Task], list[Built]]:
    tasks: list[Task] = []
    aside: list[Built] = []
    """In the server's own Python: its FlashInfer makes and names them."""
    python = Python(str(goal.python), goal.ghost)
    with (
        Crew(_GENERATOR, 1, scratch, python) as crew,
        out.progress("asking FlashInfer for its modules") as progress,
    ):
        (asker,) = crew.members
        asker.send(ASK, environment=dict(environment), modules=[asdict(module) for module in modules])
        for event in crew.told(lambda: progress.advance(0), lambda: False):
            if event["kind"] == DONE:
                return tasks, aside
            if event["kind"] == REFUSED:
                aside.append(Built(event["name"], "refused", why=event["why"]))
                out.warn(f"{event['name']}: FlashInfer does not make it here: {event['why']}")
            elif event["kind"] == READY and event["offered"]:
                aside.append(Built(event["name"], "offered"))
            elif event["kind"] == READY:
                tasks.append(
                    Task(event["name"], Path(event["folder"]), Path(event["lock"]), event["sources"])
                )
        asker.show_output()
        raise WorkFailed(f"FlashInfer could not be asked for its modules: it {asker.fate}", asker.last_words)

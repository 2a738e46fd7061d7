"""Compile FlashInfer's modules that a server loads, under a root, and report the result of each."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runtime.baking.toolkits import program_path
from runtime.ghost.inside.compilers import TOOLS
from sgl_tune.cli.out import Output
from sgl_tune.compile.build import Built, Task, build
from sgl_tune.compile.goal import Goal, Module
from sgl_tune.compile.toolkit import Toolkit, find_tool
from sgl_tune.errors import WorkFailed
from sgl_tune.processes.scratch import Scratch

_COMPILER_BYTES = 4 << 30  # the memory for one of CUTLASS's larger sources
_SECONDS = 300


def compile_modules(
    goal: Goal, modules: Sequence[Module], toolkit: Toolkit, scratch: Scratch, out: Output
) -> list[Built]:
    find_tool("ninja", os.environ)
    find_tool("c++", os.environ)
    environment = _environment(goal, toolkit, scratch)
    told = specs_of(goal.python, [asdict(one) for one in modules], {**environment, **goal.ghost}, scratch)
    aside = [Built(name, "offered") for name, spec in told.items() if "offered" in spec]
    for name, spec in told.items():
        if "failed" in spec:
            out.warn(f"{name}: FlashInfer does not make it here: {spec['failed']}")
            aside.append(Built(name, "refused", why=spec["failed"]))
    built = build(tasks_of(told), usual_jobs(), environment, scratch, out)
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


def specs_of(
    python: Path, modules: Sequence[Mapping[str, Any]], environment: Mapping[str, str], scratch: Scratch
) -> dict[str, dict[str, Any]]:
    """Return FlashInfer's description of each module, asked in the server's own Python."""
    words = [str(python), "-I", str(TOOLS / "specs.py"), json.dumps(modules)]
    try:
        done = subprocess.run(
            words, env=environment, cwd=scratch.folder, capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise WorkFailed(f"FlashInfer said nothing of its modules in {_SECONDS} s") from None
    if done.returncode:
        last = (done.stderr.strip() or "no word").splitlines()[-1][:300]
        raise WorkFailed(f"FlashInfer of {python} cannot say how its modules are built: {last}")
    told: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return told


def tasks_of(told: Mapping[str, Mapping[str, Any]]) -> list[Task]:
    return [
        Task(name, Path(spec["folder"]), Path(spec["lock"]), spec["sources"])
        for name, spec in told.items()
        if "folder" in spec
    ]

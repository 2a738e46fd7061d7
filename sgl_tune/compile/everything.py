"""All that a start of a deployment compiles, under one root, and how a server finds it there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runtime.server.gpus import CPU
from runtime.server.modules import Modules as Modules
from sgl_tune.cli.out import Output
from sgl_tune.compile.build import Built
from sgl_tune.compile.modules import chosen_of, compile_modules, modules_for
from sgl_tune.compile.server_start import Started, start
from sgl_tune.compile.server_words import why_not_started
from sgl_tune.compile.toolkit import Toolkit, find_toolkit
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.versions import Gpu, require_flashinfer
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.processes.scratch import scratch
from sgl_tune.stores.find import find_stores
from sgl_tune.stores.places import variables
from sgl_tune.stores.relocate import mend


@dataclass(frozen=True, slots=True)
class Wanted:
    """`only`: of the modules, where not all. `compiles_only`: nothing that needs a GPU."""

    only: tuple[str, ...] = ()
    compiles_only: bool = False
    jobs: int | None = None
    timeout: float = 600.0


@dataclass(frozen=True, slots=True)
class Filled:
    """`left`: what a start still compiles by itself, as far as that is known; `unknown`: what nobody read."""

    root: Path
    built: tuple[Built, ...]
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
        if self.failed or self.start_failed:
            return WorkFailed.exit_code
        gaps = self.unknown or [one for one in self.built if one.state == "refused"]
        return int(bool(gaps) and self.started is None)

    def to_json(self) -> dict[str, Any]:
        return {
            "root": str(self.root),
            "modules": [{**asdict(one), "seconds": round(one.seconds, 3)} for one in self.built],
            "unknown": list(self.unknown),
            "start": self.started.to_json() if self.started else None,
            "start_failed": self.start_failed,
            "left": list(self.left),
            "environment": dict(self.environment),
        }


Compiled = tuple[Modules, list[Built]]


def planned_modules(deployment: Deployment, wanted: Wanted) -> Modules:
    return chosen_of(modules_for(deployment), wanted.only)


def modules_json(modules: Modules) -> dict[str, Any]:
    known = [{"name": one.name, "used_by": one.used_by} for one in modules.known]
    return {"modules": known, "unknown": list(modules.unknown)}


def check_can_compile(deployments: Sequence[Deployment], wanted: Wanted) -> Toolkit:
    """Before anything is tuned, too."""
    for deployment in deployments:
        if deployment.arch == CPU.arch:
            raise UsageError("--everything compiles for GPUs, and this deployment is for none", "add --gpu")
        require_flashinfer(deployment.flashinfer_version)
    modules = (module for one in deployments for module in planned_modules(one, wanted).known)
    return find_toolkit(os.environ, dict.fromkeys(name for module in modules for name in module.headers))


def compile_all(deployment: Deployment, wanted: Wanted, toolkit: Toolkit, out: Output) -> Compiled:
    """First: what follows then loads them."""
    modules = planned_modules(deployment, wanted)
    deployment.cache_dir.mkdir(parents=True, exist_ok=True)
    with scratch() as private:
        return modules, compile_modules(deployment, modules.known, toolkit, wanted.jobs, private, out)


def variables_while_filling(deployment: Deployment) -> dict[str, str]:
    """With which what tunes and starts here compiles into the root."""
    return variables(deployment.sglang_version, str(deployment.cache_dir.absolute()), ())[0]


def finish(
    deployment: Deployment,
    wanted: Wanted,
    compiled: Compiled,
    here: Sequence[Gpu],
    out: Output,
) -> Filled:
    """Last: the server's own start, where it can be started here, and a root that can move."""
    modules, built = compiled
    why_not = why_not_started(deployment, here)
    started = failed = None
    if why_not is None and not wanted.compiles_only:
        try:
            started = start(deployment, variables_while_filling(deployment), wanted.timeout, out)
        except WorkFailed as error:  # what was compiled before it is of use
            failed = why_not = error.message
            out.error(f"{deployment.name}: {error.message}", error.remedy)
    environment = _made_right(deployment, out)
    left = () if started else tuple(_left(deployment, wanted, why_not))
    unknown = modules.unknown
    return Filled(deployment.cache_dir, tuple(built), unknown, started, failed, left, environment)


def _made_right(deployment: Deployment, out: Output) -> dict[str, str]:
    root = deployment.cache_dir
    stored = find_stores(root, lambda error: out.warn(f"{error.filename}: {error.strerror}"))
    with out.progress("relocating") as progress:
        done = mend(stored, root, str(root.absolute()), False, progress.advance, out.warn)
    if done.failed:
        raise WorkFailed(f"{root}: not every store could be made right", "see the warnings above")
    return variables(deployment.sglang_version, str(root.absolute()), done.stores(stored))[0]


def _left(deployment: Deployment, wanted: Wanted, why_not: str | None) -> Iterator[str]:
    if wanted.compiles_only and deployment.server.tunes:
        yield "tactics, which need a GPU"
    why = "it is not started" if wanted.compiles_only else why_not
    yield f"what its own start compiles beside, SGLang's kernels, Triton's, tvm-ffi's bridge to torch: {why}"

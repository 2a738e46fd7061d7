"""All that a start of a deployment compiles, under one root, and how a server finds it there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runtime.server.gpus import CPU
from runtime.server.modules import Modules as Modules
from sgl_tune.cli.out import Output
from sgl_tune.compile.build import Built
from sgl_tune.compile.modules import chosen_of, compile_modules, modules_for
from sgl_tune.compile.toolkit import Toolkit, find_toolkit
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.versions import require_flashinfer
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.processes.scratch import scratch
from sgl_tune.stores.find import find_stores
from sgl_tune.stores.root import mend
from sgl_tune.stores.variables import variables


@dataclass(frozen=True, slots=True)
class Wanted:
    """`only`: of the modules, where not all. `compiles_only`: nothing that needs a GPU."""

    only: tuple[str, ...] = ()
    compiles_only: bool = False
    jobs: int | None = None


@dataclass(frozen=True, slots=True)
class Filled:
    """`left`: what a start still compiles by itself, as far as that is known; `unknown`: what nobody read."""

    root: Path
    built: tuple[Built, ...]
    unknown: tuple[str, ...]
    left: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def failed(self) -> list[Built]:
        return [one for one in self.built if one.state == "failed"]

    @property
    def exit_code(self) -> int:
        if self.failed:
            return WorkFailed.exit_code
        return int(bool(self.unknown) or any(one.state == "refused" for one in self.built))

    def to_json(self) -> dict[str, Any]:
        return {
            "root": str(self.root),
            "modules": [{**asdict(one), "seconds": round(one.seconds, 3)} for one in self.built],
            "unknown": list(self.unknown),
            "left": list(self.left),
            "environment": dict(self.environment),
        }


def planned_modules(deployment: Deployment, wanted: Wanted) -> Modules:
    return chosen_of(modules_for(deployment), wanted.only)


def modules_json(modules: Modules) -> dict[str, Any]:
    known = [{"name": one.name, "used_by": one.used_by} for one in modules.known]
    return {"modules": known, "unknown": list(modules.unknown)}


def check_can_compile(deployments: Iterable[Deployment]) -> Toolkit:
    """Before anything is tuned, too."""
    for deployment in deployments:
        if deployment.arch == CPU.arch:
            raise UsageError("--everything compiles for GPUs, and this deployment is for none", "add --gpu")
        require_flashinfer(deployment.flashinfer_version)
    return find_toolkit(os.environ)


def fill(deployment: Deployment, wanted: Wanted, toolkit: Toolkit, out: Output) -> Filled:
    modules = planned_modules(deployment, wanted)
    deployment.cache_dir.mkdir(parents=True, exist_ok=True)
    with scratch() as private:
        built = compile_modules(deployment, modules.known, toolkit, wanted.jobs, private, out)
    environment = _made_right(deployment, out)
    return Filled(deployment.cache_dir, tuple(built), modules.unknown, _left(wanted), environment)


def _made_right(deployment: Deployment, out: Output) -> dict[str, str]:
    root = deployment.cache_dir
    stored = find_stores(root, lambda error: out.warn(f"{error.filename}: {error.strerror}"))
    with out.progress("relocating") as progress:
        done = mend(stored, root, str(root.absolute()), False, progress.advance, out.warn)
    if done.failed:
        raise WorkFailed(f"{root}: not every store could be made right", "see the warnings above")
    return variables(deployment.sglang_version, str(root.absolute()), done.stores(stored))[0]


def _left(wanted: Wanted) -> tuple[str, ...]:
    found = ["SGLang's own kernels and Triton's, which a start with SGLang installed here would fill in"]
    if wanted.compiles_only:
        found.insert(0, "tactics, which need a GPU")
    return tuple(found)

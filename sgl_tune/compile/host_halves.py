"""Build the host code of FlashInfer's modules with their own files for ninja, but without GPU code."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.baking.toolkits import program_path
from runtime.ghost import host_nvcc
from runtime.ghost.gpus import Gpu
from runtime.ghost.halves import Kind, keep_half
from runtime.ghost.library import NotALibrary
from runtime.ghost.trust import Untrusted
from runtime.sglang.server_process import ghost_for
from sgl_tune.cli.out import Output
from sgl_tune.compile.build import Built, build
from sgl_tune.compile.modules import arch_list, specs_of, tasks_of, usual_jobs
from sgl_tune.compile.toolkit import Toolkit, find_tool, toolkit_of
from sgl_tune.errors import UsageError
from sgl_tune.processes.command import safe_environment
from sgl_tune.processes.scratch import Scratch, scratch
from sgl_tune.servers.server import Server
from sgl_tune.units import count

MOST_MINUTES = 60
_SECONDS_A_SOURCE = 90  # measured on one core: 46 to 130 s for a fused MoE's, 5 s for others
_ELSEWHERE = "take it from a machine or an image that has it: `sgl-tune server modules --from PATH`"
_HEADERS = ("cuda_runtime.h",)
_LINKED = re.compile(r"-l(cudart|cuda|cublas|cublasLt|nvrtc|cudnn)\b(?!\.)")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The server, the GPU and the folder `root` for which host code is built."""

    server: Server
    gpu: Gpu
    root: Path

    @property
    def kind(self) -> Kind:
        return Kind(str(self.server.flashinfer), self.gpu.arch)


def minutes_of(sources: int, jobs: int) -> int:
    """Return an upper bound of the minutes to build this many files."""
    return -(-sources * _SECONDS_A_SOURCE // (60 * jobs))


def build_halves(wanted: Wanted, names: Sequence[str], out: Output) -> list[Built]:
    """Build the modules' host code and keep it. Builds that would take hours are refused."""
    toolkit = toolkit_of(wanted.server.python, _HEADERS)
    for tool in ("ninja", "c++", "nm", "ld"):
        find_tool(tool, os.environ)
    with scratch() as place:
        ghost = ghost_for(wanted.server.folders, wanted.root, wanted.gpu)
        environment = _environment(wanted, toolkit, place)
        modules = [{"name": name} for name in names]
        told = specs_of(wanted.server.python, modules, {**environment, **ghost.environment()}, place)
        _check(names, told)
        jobs = usual_jobs()
        for name, one in told.items():
            minutes = count(minutes_of(one["sources"], jobs), "minute")
            out.note(f"{name}: {count(one['sources'], 'file')}, at most {minutes}.")
        tasks = tasks_of(told)
        for task in tasks:
            _host_only(task.folder / "build.ninja", toolkit, ghost.library, wanted.server.cuda)
        built = build(tasks, jobs, environment, place, out)
        return [_kept(wanted, one, Path(told[one.name]["folder"])) for one in built]


def _environment(wanted: Wanted, toolkit: Toolkit, place: Scratch) -> dict[str, str]:
    return {
        **safe_environment(),
        **toolkit.environment(os.environ),
        "PATH": program_path(os.environ),
        "HOME": str(place.folder),
        "TMPDIR": str(place.folder),
        "FLASHINFER_WORKSPACE_BASE": str(place.folder),
        "FLASHINFER_CUDA_ARCH_LIST": arch_list(f"sm{wanted.gpu.arch}"),
    }


def _check(names: Sequence[str], told: Mapping[str, Mapping[str, Any]]) -> None:
    jobs = usual_jobs()
    for name in names:
        if name not in told:
            raise UsageError(f"FlashInfer builds no module {name} ahead of time", "only a server builds it")
        if "failed" in told[name]:
            raise UsageError(f"FlashInfer cannot build {name} here: {told[name]['failed']}", _ELSEWHERE)
        minutes = minutes_of(told[name]["sources"], jobs)
        if minutes > MOST_MINUTES:
            hours = f"{told[name]['sources']} files take up to {minutes // 60 + 1} hours here"
            raise UsageError(f"{name} is not built: its {hours}", _ELSEWHERE)


def _host_only(ninja: Path, toolkit: Toolkit, ghost: Path, cuda: int) -> None:
    """Make the file for ninja call our nvcc, and link to the ghost's libraries."""
    ours = f"{sys.executable} -I {Path(host_nvcc.__file__)} {toolkit.home}/bin/nvcc"
    text = re.sub(r"^nvcc = .*$", f"nvcc = {ours}", ninja.read_text(), flags=re.MULTILINE)

    def linked(match: re.Match[str]) -> str:
        version = {"cuda": "1", "cudnn": "9"}.get(match[1], str(cuda))
        return f"-L{ghost} -l:lib{match[1]}.so.{version}"

    ninja.write_text(_LINKED.sub(linked, text))


def _kept(wanted: Wanted, built: Built, folder: Path) -> Built:
    if built.state != "built":
        return built
    try:
        keep_half(folder / f"{built.name}.so", wanted.kind, built.name, wanted.root)
    except (NotALibrary, Untrusted) as error:
        return Built(built.name, "failed", built.seconds, built.steps, str(error))
    return built

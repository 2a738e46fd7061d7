"""Starts that the runtime core predicts, for the model families it knows."""

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from runtime.server.gpus import CPU, USUAL, Chosen, GpuModel, gpu_for
from runtime.server.units import GIB, MIB
from runtime.sglang.releases import NEWEST, Release
from sgl_tune.asking.question import argv_of
from sgl_tune.deployment.container import CACHE_FOLDER
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.flag_names import flag_names, flag_types
from sgl_tune.deployment.launch import container_of
from sgl_tune.deployment.project_file import the_one
from sgl_tune.deployment.selection import deployment_of
from sgl_tune.deployment.versions import Gpu, local_gpus, local_model
from sgl_tune.errors import UsageError
from sgl_tune.memory.core.predict import predict_all
from sgl_tune.memory.core.start import Start, starts_of
from sgl_tune.memory.options import MemoryOptions
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.starting import AS_IS, BEHAVIOURS, Change, Started, changed_command, layout_for
from sgl_tune.units import parse_size

_MOST_BYTES = 16 << 40


class CoreStarter:
    """Starts the core. `total_bytes`: the GPU's, if a log says it. `done`: called after each start."""

    def __init__(
        self, asked: MemoryOptions, total_bytes: int | None = None, done: Callable[[], object] = lambda: None
    ) -> None:
        self._ranks, self._done = asked.ranks, done
        self._by, named = asked.by, asked.by.flags.target
        gpu, container = None if asked.measure else named.gpu, container_of(self._by.command)
        if container and not (asked.measure or named.arch):
            gpu = container.agreed_gpu(gpu)
        self.gpu: Chosen = target_gpu(gpu, asked.gpu_memory, named.arch, local_gpus())
        if total_bytes is not None:
            self.gpu = replace(self.gpu, gpu=replace(self.gpu.gpu, cuda_bytes=total_bytes))
        self._argv, self._variables = argv_of(self._by.flags, self._by.command, NEWEST)

    @property
    def release(self) -> Release:
        return self.deployment(AS_IS).release

    def check(self, change: Change) -> None:
        self.deployment(change)

    def command(self, change: Change) -> str:
        return changed_command(self._argv, self._variables, change)

    def start(self, change: Change, least: int | None = None) -> Started:
        """Predict the start to its end. `least` is ignored, because a prediction is cheap."""
        began, deployment = time.process_time(), self.deployment(change)
        starts = self.starts(change, deployment)
        reports = predict_all(starts)
        self._done()
        return Started(
            tuple(self._noted(report, deployment, starts[0]) for report in reports),
            layout_for(deployment.parallel),
            max(starts[0].runtime.graphs.decode, default=None),
            time.process_time() - began,
        )

    def starts(self, change: Change, deployment: Deployment | None = None) -> tuple[Start, ...]:
        behaviours, _ = taken(change)
        return starts_of(deployment or self.deployment(change), self._ranks, behaviours)

    def deployment(self, change: Change) -> Deployment:
        _, flags = taken(change)
        named = None if "gpu" in flags else self.gpu.gpu
        given = self._by.flags.changed(gpu=None, arch=None)
        one = the_one(given, self._by.command, self._by.deployment)
        return deployment_of(one, changes=flags, gpu=named)

    def _noted(self, report: MemoryReport, deployment: Deployment, start: Start) -> MemoryReport:
        trust = replace(report.trust, not_modelled=deployment.not_modelled)
        assumed = self.gpu.assumed
        whose = replace(report.whose, is_gpu_assumed=assumed is not None, flags=shlex.join(self._argv))
        notes = (*filter(None, [assumed]), *deployment.inputs.notes, *start.notes)
        doubts = [text for text in deployment.inputs.warnings if not text.startswith(CACHE_FOLDER)]
        return replace(report, trust=trust, whose=whose).with_notes(*notes, warnings=doubts)


def taken(change: Change) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Split a change into behaviours of the core and flags, by their field names."""
    behaviours, flags = [], {}
    for name, value in change.parts:
        field = flag_names().get(f"--{name}")
        if name in BEHAVIOURS and value is None:
            behaviours.append(name)
        elif field is None or (value is None and flag_types()[field] is not bool):
            raise UsageError(
                f"--what-if {change.name!r}: {name!r} is no flag that the core has",
                f"one of {', '.join(BEHAVIOURS)}, no-graphs, or a flag such as dp=4, "
                "mem-fraction-static=0.86; a server has all flags: --server",
            )
        else:
            flags[field] = True if value is None else _value(field, name, value)
    return tuple(behaviours), flags


def _value(field: str, flag: str, text: str) -> Any:
    kind = flag_types()[field]
    try:
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        return kind(text)
    except (KeyError, ValueError):
        raise UsageError(f"--what-if {flag}={text}: {text!r} is no value of --{flag}") from None


def target_gpu(name: str | None, memory: str | None, arch: str | None, here: Sequence[Gpu] = ()) -> Chosen:
    """Return the GPU that all commands choose, or one with the given memory."""
    if arch == CPU.arch:
        raise UsageError("--gpu cpu has no GPU memory to report", "name the GPU: --gpu h200")
    if memory is not None:
        return Chosen(_of_size(name, memory, arch))
    return gpu_for(name, arch, [local_model(gpu) for gpu in here])


def _of_size(name: str | None, memory: str, arch: str | None) -> GpuModel:
    total = parse_size(memory, "--gpu-memory")
    if total < GIB:
        raise UsageError(f"--gpu-memory {memory} is less than a server needs", "write it as 178.35GiB")
    if total > _MOST_BYTES:
        raise UsageError(
            f"--gpu-memory {memory} is more than {_MOST_BYTES >> 40} TiB, the most that is followed here",
            "write it as 178.35GiB",
        )
    if name is not None:
        return replace(gpu_for(name, arch).gpu, cuda_bytes=total, source="--gpu-memory")
    return GpuModel(f"GPU of {total / GIB:.2f} GiB", arch or USUAL.arch, total // MIB, total, "--gpu-memory")

"""Tune the files of a plan in order: compile on the CPUs, measure on the GPU, write the winners."""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from runtime.ghost.gpus import Gpu
from runtime.record.checked import read
from sgl_tune.cli.out import Output
from sgl_tune.config_files.provenance import SCHEMA, Provenance
from sgl_tune.config_files.provenance import Bucket as Told
from sgl_tune.config_files.root import Tuned, write_root
from sgl_tune.config_tuning.job import LayerJob, Report
from sgl_tune.config_tuning.plan import ConfigPlan, LayerPlan
from sgl_tune.errors import WorkFailed
from sgl_tune.processes.command import Python
from sgl_tune.processes.interruption import ending
from sgl_tune.processes.scratch import scratch
from sgl_tune.warm.launch import Fleet, Workers

COMPILER, WORKER = "sgl_tune.config_tuning.compiler", "sgl_tune.config_tuning.worker"
_MOST_PROCESSES = 64
Say = Callable[[str], object]


@dataclass(frozen=True)
class LayerResult:
    """A layer's result. `paths`: the files written; none if the server's own choice won in every bucket."""

    plan: LayerPlan
    report: Report
    compiled: Mapping[str, Any]
    paths: tuple[Path, ...]

    @property
    def changed(self) -> int:
        return sum(one.choice is not None for one in self.report.buckets)

    @property
    def seconds(self) -> dict[str, float]:
        compiled = {f"compile_{name}": took for name, took in self.compiled["seconds"].items()}
        return {name: round(took, 2) for name, took in {**compiled, **self.report.seconds}.items()}

    @property
    def says(self) -> str:
        seconds = f"{self.compiled['seconds']['compile']:.0f} s to compile, {self.on_gpu:.0f} s on the GPU"
        if not self.paths:
            return f"{self.plan.names[0]}: nothing beat the server's own choice; {seconds}"
        gains = [one.gain for one in self.report.buckets if one.choice is not None]
        span = f"{min(gains):.2f} to {max(gains):.2f}x faster"
        changed = f"{self.changed} of {len(self.report.buckets)} batch sizes"
        return f"{self.plan.names[0]}: {changed}, {span}; {seconds}"

    @property
    def on_gpu(self) -> float:
        return self.report.seconds["prepare"] + self.report.seconds["measure"]

    def to_json(self) -> dict[str, Any]:
        buckets = {
            str(one.rows): {"present_ms": one.present_ms, "best_ms": one.best_ms, "gain": one.gain}
            for one in self.report.buckets
        }
        told = {"names": list(self.plan.names), "paths": list(map(str, self.paths)), "changed": self.changed}
        return {**told, "seconds": self.seconds, "buckets": buckets, "late": self.report.late}


def tuned_configs(plan: ConfigPlan, gpu: Gpu, python: Path, timeout: float, out: Output) -> list[LayerResult]:
    with ending(out.error):
        return tune(plan, gpu, Python(str(python)), timeout, out.note)


def tune(plan: ConfigPlan, gpu: Gpu, python: Python, timeout: float, say: Say) -> list[LayerResult]:
    """Tune the layers that have no tuned file yet. The compiled kernels that lose are not kept."""
    with ExitStack() as stack:
        private = stack.enter_context(scratch())
        kernels = private.folder / "triton"
        python = replace(python, variables={**python.variables, "TRITON_CACHE_DIR": str(kernels)})
        compiler = stack.enter_context(Workers(COMPILER, private, Fleet(1, "cpu", timeout=timeout), python))
        worker = stack.enter_context(Workers(WORKER, private, Fleet(1, "cuda", (0,), timeout), python))
        done = []
        for layer in plan.untuned:
            job = _job(plan, layer, gpu)
            say(f"compiling {layer.names[0]}")
            compiled = compiler.run({"job": asdict(job)}, lambda *_: None)
            say(f"measuring {layer.names[0]}")
            report = read(Report, worker.run({"job": asdict(job)}, lambda *_: None), "report")
            for what, wanted in (("triton", plan.triton), ("gpu", plan.gpu)):
                if (here := report.versions[what]) != wanted:
                    raise WorkFailed(f"the record is of {what} {wanted}, and {here} measured")
            done.append(_written(plan, LayerResult(layer, report, compiled, ())))
        return done


def _job(plan: ConfigPlan, layer: LayerPlan, gpu: Gpu) -> LayerJob:
    capability = gpu.numbers["major"].value, gpu.numbers["minor"].value
    processes = min(_MOST_PROCESSES, len(os.sched_getaffinity(0)))
    return LayerJob(layer.call, layer.kind, layer.buckets, plan.arguments, (plan.gpu, *capability), processes)


def _written(plan: ConfigPlan, result: LayerResult) -> LayerResult:
    if not result.changed:
        return result
    buckets = {
        str(one.rows): Told(one.present_ms, one.best_ms, one.gain, one.choice is not None)
        for one in result.report.buckets
    }
    told = Provenance(SCHEMA, plan.gpu, plan.triton, plan.sglang, "", result.seconds, buckets)
    tuned = [
        Tuned(name, {one.rows: one.entries()[place] for one in result.report.buckets}, told)
        for place, name in enumerate(result.plan.names)
        if name
    ]
    return replace(result, paths=tuple(write_root(plan.root, plan.source, tuned)))

"""From what was asked on the command line to a fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from runtime.server.bounds import REQUESTS
from runtime.server.releases import Release
from runtime.server.unpredicted import knows_starts
from sgl_tune.cli.out import Output
from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.keys.starts import server_ends
from sgl_tune.memory.answer import MemoryOptions, question_of
from sgl_tune.memory.fit import Fit, fit
from sgl_tune.memory.goals import Goals
from sgl_tune.memory.table import heading
from sgl_tune.memory.trial import Trials
from sgl_tune.units import parse_size


@dataclass(frozen=True, slots=True)
class FitOptions:
    """As typed."""

    fit: bool = False
    free: str | None = None
    requests: int | None = None

    @property
    def are_given(self) -> bool:
        if not self.fit and (self.free is not None or self.requests is not None):
            given = "--free" if self.free is not None else "--requests"
            raise UsageError(f"{given} says what must hold of the start that --fit finds", "add --fit")
        return self.fit

    def goals(self, context_length: int | None) -> Goals:
        if self.requests is not None and not REQUESTS.least <= self.requests <= REQUESTS.most:
            raise UsageError(f"--requests {self.requests}", f"{REQUESTS.least} to {REQUESTS.most:,}")
        return Goals(parse_size(self.free, "--free") if self.free else 0, self.requests, context_length)


def check_alone(asked: MemoryOptions) -> None:
    """--fit is a question of its own."""
    others = {
        "--measure": asked.measure,
        "--from": asked.from_run,
        "--log": asked.from_log,
        "--sweep": asked.sweep,
        "--what-if": asked.what_if,
        "--snapshot": asked.snapshot,
    }
    for name, value in others.items():
        if value:
            raise UsageError(f"--fit and {name} are two questions", "ask one, then the other")


def fitted(asked: MemoryOptions, options: FitOptions, out: Output) -> tuple[Fit, Release, str]:
    """With the deployment's release, whose spelling the flags have, and a heading."""
    check_alone(asked)
    question = question_of(asked, asked.flags)
    starts = question.starts()
    deployment = starts[0].deployment
    if not knows_starts(deployment.model, deployment.runtime):
        raise UsageError(
            f"{deployment.name}: --fit looks for whole starts, and what this model's forwards take is not "
            "known",
            "mem-report without --fit tells the pool; --sweep mem-fraction-static=... tells several",
        )
    if ends := server_ends(deployment):
        raise CheckFailed(
            f"{deployment.name} never starts: {ends}", "mem-report without --fit tells what it would take"
        )
    goals = options.goals(deployment.inputs.asked.context_length)
    with out.progress("fitting") as progress:
        found = fit(Trials(starts), goals, progress.advance)
    assumed = question.gpu.assumed
    report = replace(
        found.best.report,
        is_gpu_assumed=assumed is not None,
        notes=(*filter(None, [assumed]), *deployment.warnings, *deployment.notes, *starts[0].notes),
        not_modelled=deployment.not_counted,
    )
    found = replace(found, best=replace(found.best, report=report))
    return found, deployment.server.release, heading(report)

"""From what was asked on the command line to a fit."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.releases import Release
from runtime.server.unpredicted import knows_starts
from sgl_tune.cli.out import Output
from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.keys.starts import server_ends
from sgl_tune.memory.answer import question_of
from sgl_tune.memory.fit import Fit, fit
from sgl_tune.memory.options import FitOptions, MemoryOptions
from sgl_tune.memory.table import heading
from sgl_tune.memory.trial import Trials


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

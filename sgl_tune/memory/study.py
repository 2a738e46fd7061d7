"""A deployment's start on a GPU: its ranks, other ways to start it, a sweep, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from runtime.server.asked import FROM_FILES, Asked
from runtime.server.flags.spelling import spelled
from runtime.server.gpus import Chosen
from runtime.simulate.constants import GpuConstants
from sgl_tune.cli.out import Output
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments, several
from sgl_tune.memory.advice import remedies
from sgl_tune.memory.host_memory import wanted_of_host
from sgl_tune.memory.predict import Predictor, together
from sgl_tune.memory.ranks import ALL, DISTINCT, choose_ranks, rank_name
from sgl_tune.memory.report import MemoryReport, Remedy, worst
from sgl_tune.memory.start import Start, starts_of
from sgl_tune.memory.weight_files import beside_files, weight_files
from sgl_tune.memory.what_if import AS_IS, WhatIf

_NOT_FLAGS = ("model_path", "cuda_graph_config", "others", *FROM_FILES)


@dataclass(frozen=True, slots=True)
class Question:
    """Which start: `select_deployments`' arguments, the GPU, and which of its ranks."""

    flags: ServerFlags
    gpu: Chosen
    command: tuple[str, ...] = ()
    deployment: str | None = None
    ranks: str = "distinct"
    constants: GpuConstants | None = None

    def chosen(self, what_if: WhatIf = AS_IS) -> Deployment:
        gpu = None if "gpu" in what_if.flags else self.gpu.gpu
        deployments = select_deployments(
            self.flags, self.command, self.deployment, changes=what_if.flags, gpu=gpu
        )
        if len(deployments) > 1:
            raise several(deployments)
        return deployments[0]

    def starts(self, what_if: WhatIf = AS_IS) -> tuple[Start, ...]:
        starts = starts_of(self.chosen(what_if), self.ranks, what_if)
        return tuple(replace(start, constants=self.constants) for start in starts)


@dataclass(frozen=True, slots=True)
class Study:
    """`report` is of `start`, the rank that leads; of everything else each worst rank."""

    start: Start
    report: MemoryReport
    sweep: Mapping[str, MemoryReport]


def study(question: Question, what_ifs: Sequence[WhatIf], sweep: Sequence[WhatIf], out: Output) -> Study:
    asked = (AS_IS, *what_ifs, *sweep)
    groups = [question.starts(what_if) for what_if in asked]
    with Predictor() as predict:
        with out.progress("predicting", sum(map(len, groups))) as progress:
            outcomes = together(groups, predict.counted_by(progress.advance))
        lead = worst(outcomes[0])
        start = _as_settled(groups[0][outcomes[0].index(lead)], lead)
        helpful: tuple[Remedy, ...] = ()
        if lead.verdict not in ("fits", "partial", "never starts"):
            with out.progress("simulating what would help") as progress:
                helpful = remedies(groups[0], lead, predict.counted_by(progress.advance))
    chosen = start.deployment
    others = {what_if.name: worst(outcome) for what_if, outcome in zip(asked, outcomes, strict=True)}
    report = replace(
        lead,
        what_if={what_if.name: others[what_if.name] for what_if in what_ifs},
        ranks=_all_ranks(question, start, outcomes[0]),
        remedies=helpful,
        notes=(
            *_doubts(question, start),
            *chosen.warnings,
            *chosen.notes,
            *start.notes,
            *wanted_of_host(start, lead),
        ),
        not_modelled=chosen.not_counted,
        flags=flags_asked(chosen),
        is_gpu_assumed=question.gpu.assumed is not None,
    )
    folder = Path(chosen.model_path)
    if folder.is_dir() and (files := weight_files(folder)):
        report = beside_files(report, files, start.model.num_layers, start.parallel.world_size)
    return Study(start, report, {step.name: others[step.name] for step in sweep})


def _as_settled(start: Start, report: MemoryReport) -> Start:
    """With no more tokens than the other stages have room for."""
    return replace(start, most_tokens=report.sizes.kv_tokens) if start.parallel.pp > 1 else start


def _doubts(question: Question, start: Start) -> Iterator[str]:
    if question.gpu.assumed:
        yield question.gpu.assumed
    if start.parallel.pp > 1 and question.ranks not in (DISTINCT, ALL):
        yield "another stage may have room for fewer tokens, and this one then gets no more: --ranks distinct"


def flags_asked(deployment: Deployment) -> str:
    """What was set of the server's flags, as its release spells them."""
    asked, unset = deployment.inputs.asked, Asked()
    told = []
    for name in (field.name for field in fields(asked) if field.name not in _NOT_FLAGS):
        value = getattr(asked, name)
        if value == getattr(unset, name) or value is False:
            continue
        if isinstance(value, tuple):
            value = " ".join(map(str, value))
        told.append(spelled(deployment.server.release, name, value))
    return " ".join(told)


def _all_ranks(
    question: Question, start: Start, predicted: Sequence[MemoryReport]
) -> tuple[MemoryReport, ...]:
    """Every rank that was asked for, with the report of the one that is like it."""
    reports = {report.rank: report for report in predicted}
    chosen = choose_ranks(question.ranks, start.model, start.parallel)
    if len(chosen) == 1:
        return ()
    return tuple(
        replace(reports[like], rank=rank, rank_name=rank_name(start.parallel, rank))
        for rank, like in chosen.items()
    )

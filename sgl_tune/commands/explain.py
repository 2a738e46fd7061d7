"""`sgl-tune explain`: what SGLang makes of a server command, and what another release or GPU would."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from sgl_tune.cli.format import DocumentFormat, DocumentFormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Option
from sgl_tune.deployment.options import ServerCommand, ServerFlags
from sgl_tune.deployment.project_option import DeploymentOption
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.explain.against import Comparison, Other, compare
from sgl_tune.explain.against_page import show_comparison
from sgl_tune.explain.explain import Explanation
from sgl_tune.explain.markdown import comparison_lines, explanation_lines
from sgl_tune.explain.page import show_explanation
from sgl_tune.keys.advice import advised
from sgl_tune.keys.plan import Plan, make_plan

Answers = Sequence[tuple[Plan, Explanation, Comparison | None]]


def explain(
    flags: ServerFlags,
    command: ServerCommand = None,
    deployment: DeploymentOption = None,
    everything: Annotated[bool, Option("--all", help="Also what is the default, or just as asked.")] = False,
    against: Annotated[
        str | None,
        Option(
            "--against",
            metavar="X.Y.Z",
            help="What changes under this SGLang, and which caches survive.",
            show_default=False,
        ),
    ] = None,
    against_gpu: Annotated[
        str | None,
        Option("--against-gpu", metavar="b200|..", help="The same for another GPU.", show_default=False),
    ] = None,
    format: DocumentFormatOption = DocumentFormat.human,
    quiet: QuietOption = False,
) -> None:
    """Say what SGLang makes of every flag that was not set, by which rule, and since which release.

    --against and --against-gpu: what another release or GPU makes of the same, and whether the caches that
    are there survive it. It is a question: a good answer of either kind exits with 0.

    Example: sgl-tune explain --against 0.5.23 -- python -m sglang.launch_server --model-path M --tp 8
    """
    as_lines = format is DocumentFormat.markdown
    out = Output(sink(format, quiet))
    plans = [make_plan(chosen) for chosen in select_deployments(flags, command or (), deployment)]
    found: list[Comparison | None] = [None] * len(plans)
    if against is not None or against_gpu is not None:
        found = [*compare(plans, Other(against, against_gpu), flags, command or (), deployment)]
    explained = [Explanation(plan.deployment) for plan in plans]
    answers = list(zip(plans, explained, found, strict=True))
    for doubt in _doubts(answers):
        out.warn(doubt)

    def human() -> None:
        for plan, explanation, comparison in answers:
            if comparison is None:
                show_explanation(out, plan, explanation, everything)
            else:
                show_comparison(out, comparison)

    results = [_as_json(*answer) for answer in answers if format is DocumentFormat.json]
    lines = _markdown(answers, everything) if as_lines else _quiet(answers)
    out.result(results[0] if len(results) == 1 else {"plans": results}, human, lines)


def _markdown(answers: Answers, everything: bool) -> Iterable[str]:
    for plan, explanation, found in answers:
        yield from comparison_lines(found) if found else explanation_lines(plan, explanation, everything)


def _as_json(plan: Plan, explanation: Explanation, comparison: Comparison | None) -> dict[str, Any]:
    data = {**plan.to_json(), "verdict": advised(plan).to_json(), **explanation.to_json()}
    return data if comparison is None else {**data, "against": comparison.to_json()}


def _doubts(answers: Answers) -> Iterable[str]:
    starts = [(plan, found.after if found else None) for plan, _, found in answers]
    deployments = [plan.deployment for pair in starts for plan in pair if plan]
    return dict.fromkeys(f"{one.name}: {doubt}" for one in deployments for doubt in one.warnings)


def _quiet(answers: Answers) -> Iterable[str]:
    """The key; of a comparison, the names of what differs."""
    for plan, _, found in answers:
        yield from [plan.target.key] if found is None else (one.field for one in found.differences)

"""`sgl-tune explain`: what SGLang makes of a server command, and what another release or GPU would."""

from __future__ import annotations

from typing import Annotated

import typer

from sgl_tune.cli.format import Format, FormatOption
from sgl_tune.cli.out import Output
from sgl_tune.deployment.options import ServerCommand, ServerFlags, takes_server_flags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.explain.explain import Explanation
from sgl_tune.explain.page import show_explanation
from sgl_tune.keys.plan import make_plan
from sgl_tune.keys.verdict import verdict_of


@takes_server_flags
def explain(
    flags: ServerFlags,
    command: ServerCommand = None,
    deployment: Annotated[
        str | None, typer.Option("--deployment", metavar="NAME", help="One of sgl-tune.toml's.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what is the default, or just as asked.")
    ] = False,
    format: FormatOption = Format.human,
) -> None:
    """Say what SGLang makes of every flag that was not set, by which rule, and since which release.

    Example: sgl-tune explain --model-path zai-org/GLM-5.1-FP8 --tp 8 --gpu b200
    """
    out = Output(format)
    plans = [make_plan(chosen) for chosen in select_deployments(flags, command or (), deployment)]
    explained = [(plan, Explanation(plan.deployment)) for plan in plans]
    results = [
        {**plan.to_json(), "verdict": verdict_of(plan).to_json(), **explanation.to_json()}
        for plan, explanation in explained
    ]

    def human() -> None:
        for plan, explanation in explained:
            show_explanation(out, plan, explanation, everything)

    out.result(results[0] if len(results) == 1 else {"plans": results}, human)

"""`sgl-tune warm` if no server is asked: the runtime core plans, for the model families it knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from sgl_tune.cache.asked import Verdict
from sgl_tune.cache.disk import check_place
from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.commands.warm_wishes import ONE_NODE, Wishes, one_or_all
from sgl_tune.deployment.model_files import DEMO, NO_MODEL
from sgl_tune.deployment.project_file import Meant
from sgl_tune.deployment.selection import deployment_of
from sgl_tune.errors import Ended
from sgl_tune.keys.plan import Plan, make_plan
from sgl_tune.keys.verdict import verdict_of
from sgl_tune.warm.plan_page import show_plans

Judged = Sequence[tuple[Plan, Verdict]]
_WHY = "the runtime core planned it, and no server was asked"
BY_CORE: dict[str, Any] = {
    "exact": False,
    "inexact": [{"kind": "core", "name": "plan", "phase": "", "frame": "", "why": _WHY}],
}


def judged_by_core(meant: Sequence[Meant], wishes: Wishes, out: Output) -> Judged:
    if wishes.target and (told := wishes.target.flashinfer):
        meant = [one._replace(flags=one.flags.changed(flashinfer_version=told)) for one in meant]
    chosen = [deployment_of(one, changes=ONE_NODE) for one in meant]
    plans = [make_plan(one, wishes.here) for one in chosen]
    for plan in plans:
        check_place(plan.deployment.cache_dir)
        for doubt in plan.warnings:
            out.warn(f"{plan.deployment.name}: {doubt}")
    if NO_MODEL in chosen[0].notes:
        out.note(
            f"No model is given: this is the embedded demo, {DEMO}, with its caches in {chosen[0].cache_dir}"
        )
    return [(plan, verdict_of(plan)) for plan in plans]


def show_dry_run(judged: Judged, out: Output) -> NoReturn:
    out.result(
        one_or_all([planned_json(plan, verdict) for plan, verdict in judged]),
        human=lambda: show_plans(out, judged),
        quiet=(str(path) for plan, _ in judged for path in plan.paths),
    )
    if out.format is Format.quiet:
        warn_of_the_rest(judged, out)
    raise Ended(max(verdict.exit_code for _, verdict in judged))


def warn_of_the_rest(judged: Judged, out: Output) -> None:
    for plan, verdict in judged:
        if verdict.tunes != "planned":
            out.warn(f"{plan.deployment.name}: {verdict.says}")


def planned_json(plan: Plan, verdict: Verdict) -> dict[str, Any]:
    return {**plan.to_json(), **BY_CORE, "verdict": verdict.to_json()}

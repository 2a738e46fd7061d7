"""`sgl-tune warm` if no server is asked: the runtime core plans, for the model families it knows."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from sgl_tune.cache.asked import Verdict
from sgl_tune.cache.disk import check_place
from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.commands.warm_wishes import ONE_NODE, Wishes, answer_each
from sgl_tune.deployment.model_files import DEMO, NO_MODEL
from sgl_tune.deployment.project_file import Meant
from sgl_tune.deployment.selection import deployment_of
from sgl_tune.keys.plan import Plan, make_plan
from sgl_tune.keys.verdict import verdict_of
from sgl_tune.warm.plan_page import Answer, show_plan, show_verdict

_ALONE = "the core did not check whether SGLang takes these flags"
_WHY = "the runtime core planned it, and no server was asked"
BY_CORE: dict[str, Any] = {
    "exact": False,
    "inexact": [{"kind": "core", "name": "plan", "phase": "", "frame": "", "why": _WHY}],
}


def plans_by_core(meant: Sequence[Meant], wishes: Wishes, out: Output) -> list[Plan]:
    if wishes.target and (told := wishes.target.flashinfer):
        meant = [one._replace(flags=one.flags.changed(flashinfer_version=told)) for one in meant]
    for one in meant:
        deployment_of(one)  # refuses what its own nodes could not start
    chosen = [deployment_of(one, changes=ONE_NODE) for one in meant]
    plans = [make_plan(one, wishes.here) for one in chosen]
    for plan in plans:
        check_place(plan.deployment.cache_dir)
        for doubt in plan.warnings:
            out.warn(f"{plan.deployment.name}: {doubt}")
    if NO_MODEL in chosen[0].inputs.notes:
        out.note(
            f"No model is given: this is the embedded demo, {DEMO}, with its caches in {chosen[0].cache_dir}"
        )
    return plans


def show_dry_run(plans: Sequence[Plan], out: Output) -> NoReturn:
    several = len(plans) > 1
    answer_each([(one.deployment.name, partial(planned, one, several, out)) for one in plans], out)


def planned(plan: Plan, several: bool, out: Output, is_dry_run: bool = True) -> Answer:
    """Return the answer of a dry run, or of a warm that has nothing to fill."""
    verdict = verdict_of(plan)
    verdict = replace(verdict, says=f"{verdict.says}; {_ALONE}")
    warn_if_quiet(plan, verdict, out)

    def show() -> None:
        show_verdict(out, plan, verdict, several)
        if is_dry_run:
            show_plan(out, plan)

    data = {**plan.to_json(), **BY_CORE, "verdict": verdict.to_json()}
    return Answer(data, show, tuple(map(str, plan.paths)) if is_dry_run else (), verdict.exit_code)


def warn_if_quiet(plan: Plan, verdict: Verdict, out: Output) -> None:
    if out.format is Format.quiet and verdict.tunes != "planned":
        out.warn(f"{plan.deployment.name}: {verdict.says}")

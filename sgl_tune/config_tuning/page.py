"""Print files of Triton configurations, also as JSON: what a start finds, and what a warm did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.config_files.root import VARIABLE
from sgl_tune.config_tuning.plan import ConfigPlan, notes
from sgl_tune.warm.plan_page import Answer, show_recorded

if TYPE_CHECKING:
    from pathlib import Path

    from sgl_tune.config_tuning.story import LayerResult
    from sgl_tune.recorded.plan import RecordedPlan


def configs_json(plan: ConfigPlan, done: Sequence[LayerResult]) -> dict[str, Any]:
    """Return the configuration files as JSON. `environment`: variables with which a server finds them."""
    has_files = any(one.paths for one in done) or any(one.tuned for one in plan.files)
    environment = {VARIABLE: str(plan.root)} if has_files else {}
    return {"files": plan.to_json(), "tuned": [one.to_json() for one in done], "environment": environment}


def show_configs(out: Output, plan: ConfigPlan, done: Sequence[LayerResult]) -> None:
    if not plan.files:
        return
    out.line(plan.says, style="bold")
    for one in done:
        out.line(one.says, indent=2)
    for note in () if done else notes(plan):
        out.line(note, indent=2)
    if environment := configs_json(plan, done)["environment"]:
        out.line(f"give the server {VARIABLE}={environment[VARIABLE]}", style="green", indent=2)


def answer_of(
    out: Output,
    data: dict[str, Any],
    show: Callable[[], None],
    configs: ConfigPlan,
    done: Sequence[LayerResult],
    paths: Sequence[Path],
    code: int,
) -> Answer:
    """Join a warm's answer (`data`, `show`, `paths`) with its Triton configurations."""

    def human() -> None:
        show()
        show_configs(out, configs, done)

    written = [path for one in done for path in one.paths]
    told = {**data, "moe_configs": configs_json(configs, done)}
    return Answer(told, human, tuple(map(str, (*paths, *written))), code)


def plan_answer(
    out: Output, plan: RecordedPlan, configs: ConfigPlan, done: Sequence[LayerResult] = ()
) -> Answer:
    """Return the answer of a dry run, or of a warm that tunes nothing with FlashInfer."""
    paths = [plan.deployment.cache_dir / path for cache in plan.caches for path in cache.paths]
    if out.format is Format.quiet and plan.exit_code:
        out.warn(f"{plan.deployment.name}: {plan.says}")
    show = partial(show_recorded, out, plan)
    return answer_of(out, plan.to_json(), show, configs, done, paths, plan.exit_code)

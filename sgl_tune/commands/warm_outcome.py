"""`sgl-tune warm` of the runtime core's plans, with one result even if Ctrl-C interrupts it."""

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from sgl_tune.cli.out import Output
from sgl_tune.commands.warm_core import BY_CORE, planned, warn_if_quiet
from sgl_tune.commands.warm_wishes import Wishes, answer_each
from sgl_tune.deployment.model_files import NO_MODEL
from sgl_tune.errors import CheckFailed
from sgl_tune.keys.plan import Plan
from sgl_tune.keys.verdict import verdict_of
from sgl_tune.pins.lock import write_lock
from sgl_tune.processes.interruption import ending
from sgl_tune.warm.devices import check_target, choose_devices
from sgl_tune.warm.plan_page import Answer, show_verdict
from sgl_tune.warm.result import Warmed
from sgl_tune.warm.result_page import show_warmed
from sgl_tune.warm.story import Settings, warm_deployment

_BY_ITSELF = "let the server tune them at its first start; `sgl-tune verify` judges what it saves"


def warm_all(plans: Sequence[Plan], wishes: Wishes, out: Output) -> NoReturn:
    devices = choose_devices(wishes.device.value, wishes.here)
    for plan in plans:
        if plan.caches and not verdict_of(plan).obstacle:
            check_target(plan.deployment, devices, wishes.here)
    several = len(plans) > 1
    settings = Settings(devices, wishes.timeout, wishes.replace, wishes.is_proven)
    with ending(out.error):

        def answered(plan: Plan) -> Answer:
            if not plan.caches:
                return planned(plan, several, out, is_dry_run=False)
            for note in plan.notes[len(plan.warnings) :]:
                if note != NO_MODEL:  # printed before, as the first line
                    out.note(f"{plan.deployment.name}: {note}")
            if (verdict := verdict_of(plan)).obstacle is not None:
                raise CheckFailed(verdict.says, _BY_ITSELF)
            warmed = warm_deployment(plan, settings, out)
            write_lock(plan.deployment.cache_dir)
            return _answer(warmed, plan, several, wishes, out)

        answer_each([(plan.deployment.name, partial(answered, plan)) for plan in plans], out)


def _answer(warmed: Warmed, plan: Plan, several: bool, wishes: Wishes, out: Output) -> Answer:
    verdict = verdict_of(plan, warmed.is_proven)  # a proof removes the doubt about an unknown FlashInfer
    warn_if_quiet(plan, verdict, out)

    def show() -> None:
        if verdict.tunes != "planned":
            show_verdict(out, plan, verdict, several)
        show_warmed(out, warmed)

    paths = [cache.written.paths for cache in warmed.caches]
    is_good = wishes.are_read([of[0] for of in paths], out) and warmed.is_good
    data = {**warmed.to_json(), **BY_CORE, "verdict": verdict.to_json()}
    code = max(verdict.exit_code, int(not is_good))
    return Answer(data, show, tuple(str(path) for of in paths for path in of), code)

"""`sgl-tune warm` of the runtime core's plans, with one result even if Ctrl-C interrupts it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sgl_tune.cache.asked import Verdict
from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.commands.warm_core import BY_CORE, Judged, planned_json, warn_of_the_rest
from sgl_tune.commands.warm_wishes import Wishes, one_or_all
from sgl_tune.deployment.model_files import NO_MODEL
from sgl_tune.errors import CheckFailed, Ended, SglTuneError
from sgl_tune.keys.verdict import verdict_of
from sgl_tune.pins.lock import write_lock
from sgl_tune.processes.interruption import ending
from sgl_tune.warm.devices import check_target, choose_devices, target_doubts
from sgl_tune.warm.plan_page import show_verdict
from sgl_tune.warm.result import Warmed
from sgl_tune.warm.result_page import show_warmed
from sgl_tune.warm.story import Settings, warm_deployment
from sgl_tune.warm.workforce import Workforce, workforce

MISSED = 1


def warm_all(judged: Judged, wishes: Wishes, out: Output) -> NoReturn:
    devices = choose_devices(wishes.device.value, wishes.here)
    for plan, verdict in judged:
        if plan.caches and not verdict.obstacle:
            check_target(plan.deployment, devices, wishes.here)
            for doubt in target_doubts(plan.deployment):
                out.warn(f"{plan.deployment.name}: {doubt}")
    came = Outcome(judged, out)
    with ending(came.tell_end), workforce() as force:
        came.warm(Settings(devices, wishes.timeout, wishes.replace, wishes.is_proven), force)
        paths = [cache.written.paths[0] for one in came.warmed.values() for cache in one.caches]
        if not wishes.are_read(paths, out):
            came.code = max(came.code, MISSED)
    for root in {warmed.plan.deployment.cache_dir for warmed in came.warmed.values()}:
        write_lock(root)
    came.show()
    raise Ended(came.code)


@dataclass
class Outcome:
    """The results of one warm. `warmed`: the result of each deployment, by its index in `judged`."""

    judged: Judged
    out: Output
    warmed: dict[int, Warmed] = field(default_factory=dict)
    code: int = 0

    def warm(self, settings: Settings, force: Workforce) -> None:
        """Warm each deployment. If one fails, the others are still warmed."""
        planned = [number for number, (plan, _) in enumerate(self.judged) if plan.caches]
        for number in planned:
            with self._failure_of(number):
                plan, verdict = self.judged[number]
                for note in plan.notes[len(plan.warnings) :]:
                    if note != NO_MODEL:  # printed before, as the first line
                        self.out.note(f"{plan.deployment.name}: {note}")
                _check_tunable(verdict)
                warmed = warm_deployment(plan, settings, self.out, force, is_last=number == planned[-1])
                self.warmed[number] = warmed
                self.code = max(self.code, 0 if warmed.is_good else MISSED)
        self.code = max(self.code, *(self._verdict(number).exit_code for number in range(len(self.judged))))

    def _verdict(self, number: int) -> Verdict:
        """Return the plan's verdict. A successful proof removes the doubt about an unknown FlashInfer."""
        return verdict_of(self.judged[number][0], number in self.warmed and self.warmed[number].is_proven)

    @contextmanager
    def _failure_of(self, number: int) -> Iterator[None]:
        """If one of several deployments fails in this block, print the error and continue; else raise it."""
        try:
            yield
        except SglTuneError as error:
            if len(self.judged) == 1:
                raise
            self.out.error(f"{self.judged[number][0].deployment.name}: {error.message}", error.remedy)
            self.code = max(self.code, error.exit_code)

    def tell_end(self, said: str) -> None:
        """When a signal ends the warm, print what was already done."""
        if self.warmed:
            self._show([])
        self.out.error(said)

    def show(self) -> None:
        """Print the results, beginning with the deployments that were not warmed completely."""
        left = [n for n in range(len(self.judged)) if self._verdict(n).tunes != "planned"]
        if self.warmed or left:
            self._show(left)

    def _show(self, left: Sequence[int]) -> None:
        numbers = sorted({*self.warmed, *(n for n in left if not self.judged[n][0].caches)})
        self.out.result(
            one_or_all([self._as_json(number) for number in numbers]),
            human=lambda: self._show_page(left),
            quiet=(str(p) for one in self.warmed.values() for c in one.caches for p in c.written.paths),
        )
        if self.out.format is Format.quiet:
            warn_of_the_rest([(self.judged[n][0], self._verdict(n)) for n in left], self.out)

    def _show_page(self, left: Sequence[int]) -> None:
        for number in left:
            plan = self.judged[number][0]
            show_verdict(self.out, plan, self._verdict(number), named=len(self.judged) > 1)
        for warmed in self.warmed.values():
            show_warmed(self.out, warmed)

    def _as_json(self, number: int) -> dict[str, Any]:
        plan, verdict = self.judged[number]
        if number not in self.warmed:
            return planned_json(plan, verdict)
        return {**self.warmed[number].to_json(), **BY_CORE, "verdict": self._verdict(number).to_json()}


def _check_tunable(verdict: Verdict) -> None:
    if verdict.obstacle is not None:
        raise CheckFailed(
            verdict.says,
            "let the server tune them at its first start; `sgl-tune verify` judges what it saves",
        )

"""What `sgl-tune warm` has done so far: one result, also where Ctrl-C ends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.commands.recorded_page import SCHEMA_VERSION
from sgl_tune.errors import SglTuneError
from sgl_tune.keys.plan import Plan
from sgl_tune.keys.plan_view import show_plans, show_verdict
from sgl_tune.keys.verdict import Verdict, verdict_of
from sgl_tune.warm.result_page import show_warmed

if TYPE_CHECKING:
    from sgl_tune.warm.result import Warmed

Judged = Sequence[tuple[Plan, Verdict]]
_WHY = "the runtime core planned it, and no server was asked"
BY_CORE: dict[str, Any] = {
    "exact": False,
    "inexact": [{"kind": "core", "name": "plan", "phase": "", "frame": "", "why": _WHY}],
}


@dataclass
class Outcome:
    """`warmed` by the place of its deployment in `judged`."""

    judged: Judged
    out: Output
    warmed: dict[int, Warmed] = field(default_factory=dict)
    code: int = 0

    @contextmanager
    def failure_of(self, number: int) -> Iterator[None]:
        """Of one deployment among several: it is told, and the others go on."""
        try:
            yield
        except SglTuneError as error:
            if len(self.judged) == 1:
                raise
            self.out.error(f"{self.judged[number][0].deployment.name}: {error.message}", error.remedy)
            self.code = max(self.code, error.exit_code)

    def show_what_is_done(self) -> None:
        if self.warmed:
            self._show([])

    def show(self) -> None:
        """What was not warmed whole comes first, and says so."""
        left = [number for number, (_, verdict) in enumerate(self.judged) if verdict.tunes != "planned"]
        if self.warmed or left:
            self._show(left)

    def _show(self, left: Sequence[int]) -> None:
        numbers = sorted({*self.warmed, *(n for n in left if not self.judged[n][0].caches)})
        self.out.result(
            one_or_all([self._as_json(number) for number in numbers]),
            human=lambda: self._show_page(left),
            quiet=self._quiet(),
        )
        if self.out.format is Format.quiet:
            warn_of_the_rest([self.judged[number] for number in left], self.out)

    def _show_page(self, left: Sequence[int]) -> None:
        for number in left:
            show_verdict(self.out, *self.judged[number], named=len(self.judged) > 1)
        for warmed in self.warmed.values():
            show_warmed(self.out, warmed)

    def _quiet(self) -> Iterator[str]:
        for warmed in self.warmed.values():
            yield from (str(path) for cache in warmed.caches for path in cache.written.paths)

    def _as_json(self, number: int) -> dict[str, Any]:
        plan, verdict = self.judged[number]
        if number not in self.warmed:
            return planned_json(plan, verdict)
        return {**self.warmed[number].to_json(), **BY_CORE, "verdict": verdict_of(plan).to_json()}


def show_dry_run(judged: Judged, out: Output) -> None:
    out.result(
        one_or_all([planned_json(plan, verdict) for plan, verdict in judged]),
        human=lambda: show_plans(out, judged),
        quiet=(str(path) for plan, _ in judged for path in plan.paths),
    )
    if out.format is Format.quiet:
        warn_of_the_rest(judged, out)


def warn_of_the_rest(judged: Judged, out: Output) -> None:
    for plan, verdict in judged:
        if verdict.tunes != "planned":
            out.warn(f"{plan.deployment.name}: {verdict.says}")


def planned_json(plan: Plan, verdict: Verdict) -> dict[str, Any]:
    return {**plan.to_json(), **BY_CORE, "verdict": verdict.to_json()}


def one_or_all(results: list[dict[str, Any]]) -> dict[str, Any]:
    data = results[0] if len(results) == 1 else {"plans": results}
    return {"schema_version": SCHEMA_VERSION, **data}

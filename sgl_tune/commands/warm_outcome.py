"""What `sgl-tune warm` has done so far: one result, also where Ctrl-C ends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.compile.everything import Filled, Modules, modules_json
from sgl_tune.compile.page import show_filled, show_modules
from sgl_tune.errors import SglTuneError
from sgl_tune.keys.plan import Plan
from sgl_tune.keys.plan_view import show_plans, show_verdict
from sgl_tune.keys.verdict import Verdict, verdict_of
from sgl_tune.stores.places import export_lines, kubernetes_lines
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
    """`warmed` and `filled` by the place of their deployment in `judged`."""

    judged: Judged
    out: Output
    for_kubernetes: bool
    warmed: dict[int, Warmed] = field(default_factory=dict)
    filled: dict[int, Filled] = field(default_factory=dict)
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
        if self.warmed or self.filled:
            self._show([])

    def show(self) -> None:
        """What was not warmed whole comes first, and says so."""
        left = [number for number, (_, verdict) in enumerate(self.judged) if verdict.tunes != "planned"]
        if self.warmed or self.filled or left:
            self._show(left)

    def _show(self, left: Sequence[int]) -> None:
        numbers = sorted({*self.warmed, *self.filled, *(n for n in left if not self.judged[n][0].caches)})
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
        for filled in self.filled.values():
            show_filled(self.out, filled)

    def _quiet(self) -> Iterator[str]:
        lines = kubernetes_lines if self.for_kubernetes else export_lines
        for filled in self.filled.values():
            yield from lines(filled.environment)
        if not self.filled:
            for warmed in self.warmed.values():
                yield from (str(path) for cache in warmed.caches for path in cache.written.paths)

    def _as_json(self, number: int) -> dict[str, Any]:
        plan, verdict = self.judged[number]
        data = planned_json(plan, verdict)
        if number in self.warmed:
            data = {**self.warmed[number].to_json(), **BY_CORE, "verdict": verdict_of(plan).to_json()}
        return {**data, "everything": self.filled[number].to_json()} if number in self.filled else data


def show_dry_run(judged: Judged, modules: Sequence[Modules], out: Output) -> None:
    """`modules`: of each deployment, where they would be compiled; empty otherwise."""

    def human() -> None:
        show_plans(out, judged)
        for one in modules:
            show_modules(out, one)

    results = [planned_json(plan, verdict) for plan, verdict in judged]
    for data, one in zip(results, modules, strict=False):
        data["everything"] = modules_json(one)
    out.result(
        one_or_all(results),
        human=human,
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
    return results[0] if len(results) == 1 else {"plans": results}

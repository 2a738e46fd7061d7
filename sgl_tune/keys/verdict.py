"""What a server's start tunes, in one line: the first of every answer about a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.gaps import Gap, unplanned
from sgl_tune.keys.keys import skipped_ops
from sgl_tune.keys.plan import Plan
from sgl_tune.keys.starts import server_ends
from sgl_tune.keys.tunable import cannot_tune
from sgl_tune.units import count

Tunes = Literal["nothing", "planned", "unplanned"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`gaps`: what of it cannot be planned. `obstacle`: why no warm can tune what is planned, either. `runs`:
    whether such a server starts at all."""

    tunes: Tunes
    says: str
    gaps: tuple[Gap, ...] = ()
    obstacle: str | None = None
    advice: Mapping[str, str] | None = None
    runs: bool = True

    @property
    def exit_code(self) -> int:
        return 1 if self.tunes == "unplanned" or not self.runs else 0

    def to_json(self) -> dict[str, Any]:
        unknown = [{"what": gap.what, "why": gap.why} for gap in self.gaps]
        return {
            "tunes": self.tunes,
            "says": self.says,
            "unplanned": unknown,
            "obstacle": self.obstacle,
            "advice": self.advice,
        }


def verdict_of(plan: Plan) -> Verdict:
    found = _verdict(plan)
    asides = filter(None, ["" if plan.is_idle else plan.deployment.guessed, plan.deployment.not_modelled])
    return replace(found, says="; ".join([found.says, *asides]))


def _verdict(plan: Plan) -> Verdict:
    ends = server_ends(plan.deployment)
    if ends:
        return Verdict("nothing", f"tunes nothing: this server does not start: {ends}", runs=False)
    if plan.is_idle:
        return Verdict("nothing", f"tunes nothing: {_why_nothing(plan.deployment)}")
    gaps = gaps_of(plan)
    obstacle = cannot_tune(plan)
    untuned = f"; no warm can tune them here: {obstacle}" if obstacle else ""
    if not gaps:
        return Verdict("planned", f"tunes {planned_text(plan)}{untuned}", obstacle=obstacle)
    what = " and ".join(dict.fromkeys(gap.what for gap in gaps))
    why = "; ".join(dict.fromkeys(gap.why for gap in gaps))
    beside = f"; {planned_text(plan)} are planned" if plan.caches else ""
    said = f"tunes {what}, which cannot be planned: {why}{beside}{untuned}"
    return Verdict("unplanned", said, gaps, obstacle)


def _why_nothing(deployment: Deployment) -> str:
    if deployment.server.tunes:
        skipped = sorted(skipped_ops(deployment))
        but = f" but for {', '.join(skipped)}, which it skips" if skipped else ""
        return f"the server's autotuner runs, and no layer of this model asks it{but}"
    return deployment.server.tunes_because


def gaps_of(plan: Plan) -> tuple[Gap, ...]:
    """Of the target and of its draft."""
    return tuple(_gaps(plan))


def _gaps(plan: Plan) -> Iterator[Gap]:
    yield from unplanned(plan.deployment)
    draft = plan.deployment.draft_deployment
    if draft is None or plan.draft is None:
        return
    for gap in unplanned(draft):
        yield Gap(f"the draft's {gap.what.removeprefix('the ')}", gap.why)
    if plan.draft.ops and not plan.target.ops:
        yield Gap("a draft alone", "its cache is filled with its target's, which holds nothing here")


def planned_text(plan: Plan) -> str:
    ops = [op for cache in plan.caches for op in cache.ops]
    entries = count(sum(len(op.keys) for op in ops), "entry")
    files = count(sum(len(cache.files) for cache in plan.caches), "file")
    return f"{count(len(ops), 'op')}, {entries} in {files}"

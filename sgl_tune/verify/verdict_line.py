"""The last line of `verify`: what the next start loads, or that no server is known to say it of."""

from __future__ import annotations

from collections.abc import Sequence

from sgl_tune.keys.plan import Plan
from sgl_tune.keys.verdict import verdict_of
from sgl_tune.units import count
from sgl_tune.verify.findings import Verdict, VerifyReport


def verdict_line(report: VerifyReport, plans: Sequence[Plan], ok: bool) -> str:
    return f"{'good' if ok else 'bad'}: {_loads(report, plans)}"


def _loads(report: VerifyReport, plans: Sequence[Plan]) -> str:
    used = sum(file.verdict in (Verdict.HIT, Verdict.PARTIAL) for file in report.files)
    loads = f"{used} of {count(len(report.files), 'file')}"
    if not plans:
        return f"{loads} load, judged by themselves: no deployment is given"
    idle = [plan for plan in plans if plan.is_idle]
    if len(idle) == len(plans):
        return f"the next start loads no file: {_idle(idle)}"
    said = [f"the next start loads {loads}"]
    if idle:
        said.append(_idle(idle))
    if any(verdict_of(plan).tunes == "unplanned" for plan in plans):
        said.append("whether they hold all that it tunes is not known")
    said += dict.fromkeys(aside for plan in plans if (aside := plan.deployment.not_modelled))
    return "; ".join(said)


def _idle(plans: Sequence[Plan]) -> str:
    if len(plans) == 1:
        return f"{plans[0].deployment.name} {verdict_of(plans[0]).says}"
    return f"{', '.join(plan.deployment.name for plan in plans)} tune nothing"

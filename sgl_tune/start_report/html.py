"""A start's report as one page, with a timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sgl_tune.start_report.against import Against
from sgl_tune.start_report.report import StartReport
from sgl_tune.start_report.table import headline, notes
from sgl_tune.web_page.render import rendered

_PAGE = Path(__file__).parent / "page"
_CHART = ("The start, second by second", "Point at a span, or walk through them with the Tab key.")


def render_page(report: StartReport, other: Against | None, title: str) -> str:
    data: dict[str, Any] = {**report.to_json(), "title": f"The start in {title}"}
    death = report.outcome.log.death
    data["headline"] = headline(report)
    data["death"] = death.text if death else None
    data["to_do"] = [remedy.line() for remedy in report.outcome.remedies] if death else []
    data["all_notes"] = [*notes(report)]
    data["against"] = {**other.to_json(), "headline": other.headline} if other else None
    return rendered(_PAGE, ("script.js",), f"The start in {title}: {data['headline']}", _CHART, data)

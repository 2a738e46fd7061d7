"""Write the report as one HTML page without network or libraries, in light and dark."""

from __future__ import annotations

from pathlib import Path

from sgl_tune.memory.report import Answer
from sgl_tune.memory.views import tables
from sgl_tune.memory.views.words import exactness, failure_text, heading, remedy_text, sizes_text, verdict
from sgl_tune.web_page.render import rendered

_PAGE = Path(__file__).parent / "page"
_SCRIPTS = ("sweep.js", "script.js")
_CHART = (
    "What holds the GPU at the peak of each phase",
    "Point at a phase, or walk through them with the Tab key, for its parts and its largest allocations.",
)


def render_page(found: Answer) -> str:
    report = found.report
    text, style = verdict(report)
    trust = [report.trust.not_modelled, exactness(report), failure_text(report)]
    shown = [
        tables.phases(report),
        tables.parts_by_phase(report),
        tables.largest(report),
        *tables.beside(found),
    ]
    data = {
        **found.to_json(),
        "heading": heading(report),
        "verdict_text": text,
        "verdict_style": style,
        "said": [*filter(None, trust)],
        "calls": [f"at {frame}" for frame in reversed(report.stack)],
        "helps": [[remedy_text(report, n), one.command] for n, one in enumerate(report.remedies)],
        "sizes_text": sizes_text(report),
        "tables": [table.to_json() for table in shown if table.rows],
        "provenance": [table.to_json() for table in [tables.constants(report)] if table.rows],
        "warnings": list(report.trust.warnings),
        "sources": list(report.trust.notes),
    }
    title = f"{heading(report)}, {report.whose.flags}"
    return rendered(_PAGE, _SCRIPTS, title, _CHART, data)

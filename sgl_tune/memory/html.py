"""The report as one page that needs nothing else: no network, no library, light and dark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sgl_tune.web_page.render import rendered

_PAGE = Path(__file__).parent / "page"
_SCRIPTS = ("sweep.js", "script.js")
_CHART = (
    "Memory over the start",
    "Point at a phase, or walk through them with the Tab key: what it holds and its largest allocations.",
)


def render_page(data: Mapping[str, Any]) -> str:
    """`data` is the report's JSON with a `title` and a `subtitle`."""
    flags = f", {data['flags']}" if data.get("flags") else ""
    title = f"{data['title']} on {data['gpu']}: {data['subtitle']}{flags}"
    return rendered(_PAGE, _SCRIPTS, title, _CHART, data)

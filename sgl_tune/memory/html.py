"""The report as one page that needs nothing else: no network, no library, light and dark."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PAGE = Path(__file__).parent / "page"
_SCRIPTS = ("sweep.js", "log.js", "script.js")  # the last one draws


def render_page(data: Mapping[str, Any]) -> str:
    """`data` is the report's JSON with a `title` and a `subtitle`."""
    flags = f", {data['flags']}" if data.get("flags") else ""
    parts = {
        "title": html.escape(f"{data['title']} on {data['gpu']}: {data['subtitle']}{flags}"),
        "style": (_PAGE / "style.css").read_text(encoding="utf-8"),
        "script": "".join((_PAGE / name).read_text(encoding="utf-8") for name in _SCRIPTS),
        # A `</script>` in a model's name would end the element that holds the data.
        "data": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
    }
    page = (_PAGE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], page)

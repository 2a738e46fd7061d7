"""Write a page as one file: the common frame, its style, its scripts and its data."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_HOUSE = Path(__file__).parent


def rendered(
    folder: Path, scripts: Sequence[str], title: str, chart: tuple[str, str], data: Mapping[str, Any]
) -> str:
    """Return the page. The last of `folder`'s scripts draws; scripts read `data` from the page. `chart`:
    the texts above and below it."""
    own = [folder / "style.css"] if (folder / "style.css").exists() else []
    parts = {
        "title": html.escape(title),
        "heading": html.escape(chart[0]),
        "hint": html.escape(chart[1]),
        "style": _joined([_HOUSE / "style.css", *own]),
        "script": _joined([_HOUSE / "elements.js", *(folder / name for name in scripts)]),
        # A `</script>` in a name would end the element that contains the data.
        "data": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
    }
    page = (_HOUSE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], page)


def _joined(paths: Sequence[Path]) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in paths)

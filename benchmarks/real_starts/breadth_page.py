"""The rows of the breadth table as Markdown: a table a release and GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

HEAD = """# Many models on GPUs that are not there

Made by `benchmarks/real_starts/breadth.py`: SGLang's own start with its default flags and tp as published, of
rank 0, with dummy weights. A row says how the start ended, in SGLang's words where it refused or died, and by
what an answer is not exact. "layers": how many of the model's first layers were started; a cut model's pool
holds more tokens a layer, so that a copy of a layer's pool may not fit where it fits in the whole model.
"commit": of this project, which made the row.
"""
NAMES = ("model", "tp", "layers", "ends", "KV tokens", "not exact because of", "CPU s", "commit")
COLUMNS = f"| {' | '.join(NAMES)} |\n{'|---' * len(NAMES)}|\n"


def page(rows: Sequence[dict[str, Any]]) -> str:
    parts = [HEAD]
    for (release, gpu), found in groupby(rows, key=lambda row: (row["release"], row["gpu"])):
        these = list(found)
        built = f"torch {these[0]['torch']}, CUDA {these[0]['cuda']}"
        parts.append(f"\n## SGLang {release} on the {gpu.upper()} ({built})\n")
        parts.append(COLUMNS + "".join(_line(one) for one in these))
    return "\n".join(parts)


def _line(one: dict[str, Any]) -> str:
    ends = (
        one["ending"]
        if one["ending"] == "ready"
        else f"{one['ending']} in {one['phase']}: {_short(one['text'])}"
    )
    cells = (
        one["model"],
        one["tp"],
        one["layers"] or "all",
        ends,
        one["kv_tokens"] or "",
        "<br>".join(because(one["inexact"])) or "exact",
        one["cpu"],
        one["commit"],
    )
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |\n"


def because(inexact: Sequence[Sequence[str]]) -> list[str]:
    """Each finding once, without its place; names of one kind together where they are many."""
    kinds: dict[str, list[str]] = {}
    for kind, name, _, _ in inexact:
        short = _name(name)
        if short not in kinds.setdefault(kind, []):
            kinds[kind].append(short)
    return [f"{kind} {', '.join(names[:6])}{_more(names)}" for kind, names in kinds.items()]


def _name(name: str) -> str:
    kernel = re.match(r"(occupancy|attributes|clusters) of ", name)
    if kernel and len(name) > 90:
        return f"{name[:60]}..."
    return name if len(name) <= 90 else f"{name[:87]}..."


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - 6} more" if len(names) > 6 else ""


def _short(text: str) -> str:
    return " ".join(text.split())[:220]

"""SGLang's own flags and their values, as its parser takes them. `flags.txt` lists the flags of the release
that the core plans as (`benchmarks/server_flags.py` writes it)."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from runtime.server.nearest import meant
from runtime.sglang.releases import NEWEST
from sgl_tune.errors import UsageError

_NUMBERS = {"int": r"[+-]?\d{1,18}", "float": r"[+-]?(?:\d{1,18}\.?\d*|\.\d+)(?:e[+-]?\d{1,3})?"}
_OURS = """
    against cache-dir compile-only dry-run everything file fit format free gpu gpu-memory html log
    measure model-config no-fold out prove quiet ranks record replace requests server snapshot sweep taken
    target timeout verbose what-if
"""


def value_meant(refusal: str) -> str | None:
    """Return `did you mean ...?` for argparse's refusal of a flag's value, if one of its choices is near."""
    found = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", refusal)
    return meant(found[1], (one.strip("' ") for one in found[2].split(","))) if found else None


@functools.cache
def _kinds() -> dict[str, str]:
    """Return the kind of value of each flag of the release that the core plans as: `int`, `a|b`, `text*`."""
    rows = (line.split("\t") for line in (Path(__file__).parent / "flags.txt").read_text().splitlines())
    return {name: kind for names, kind in rows for name in names.split()}


def whole_name(name: str) -> str:
    """Return the whole name, as argparse does; refuse what is no flag, and what several flags begin with."""
    known = _kinds()
    begun = [name] if name in known else [one for one in known if one.startswith(name)]
    if name not in begun and name.removeprefix("--") in _OURS.split():
        raise UsageError(f"{name} is sgl-tune's own flag, and SGLang has none", f"put {name} before --")
    if len(begun) > 1:
        said = f"{name} is short for several flags of SGLang {NEWEST.version}"
        raise UsageError(said, f"write a whole one: {' or '.join(begun[:3])}")
    if not begun:
        close = get_close_matches(name, known, 1, 0.75)
        way = f"write {close[0]}, or another whole name" if close else "write a whole name"
        raise UsageError(f"{name} is no flag of SGLang {NEWEST.version}", way)
    return begun[0]


def check_values(name: str, typed: str, values: Sequence[str]) -> None:
    """Refuse values that SGLang's parser refuses for the flag `name`, which the command spells `typed`."""
    kind = _kinds()[name].rstrip("+*?")
    if kind == "switch" and values:
        raise UsageError(f"{typed} takes no value, and {values[0][:80]} follows it")
    if kind != "switch" and kind == _kinds()[name] and len(values) != 1:
        raise UsageError(f"{typed} takes one value, and {len(values)} follow it")
    for value in values:
        if "|" in kind and value not in kind.split("|"):
            near = meant(value, kind.split("|")) or f"one of {kind.replace('|', ', ')}"
            raise UsageError(f"{typed} {value[:80]} is not known to SGLang {NEWEST.version}", near)
        if kind in _NUMBERS and not re.fullmatch(_NUMBERS[kind], value):
            what = "a whole number" if kind == "int" else "a number"
            raise UsageError(f"{typed} {value[:80]}: {what} is needed")

"""A rank file that is a link: a server follows it, and it is read here as far as it stays in the cache."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sgl_tune.cache.folder import read_below
from sgl_tune.verify.findings import Finding, Severity, Verdict, finding

_REMEDY = "put the file itself in its place"


def read_through(path: Path, root: Path) -> bytes | None:
    """What the server reads; None where the link leads out of `root`, or to no file."""
    inside, real = Path(os.path.realpath(root)), Path(os.path.realpath(path))
    if not real.is_relative_to(inside):
        return None
    try:
        return read_below(real, inside)
    except OSError:
        return None


def followed(path: Path) -> Finding:
    message = f"it is a link to {_target(path)}: the server loads that, and its next save ends the link"
    return finding("is-a-link", message, f"nothing to do, or {_REMEDY}")


def unread(path: Path) -> tuple[Verdict, Finding]:
    """Of a link that leads out of the cache, or to nothing that is a file. Only its status is looked at."""
    try:
        leads_to_file = stat.S_ISREG(path.stat().st_mode)
    except OSError:
        leads_to_file = False
    if leads_to_file:
        message = (
            f"it is a link to {_target(path)}: the server loads that, whatever it holds; it lies outside of"
            " the cache, and is not read here"
        )
        return Verdict.PARTIAL, finding("is-a-link", message, _REMEDY, Severity.ERROR)
    message = (
        f"it is a link to {_target(path)}, where no file is: the server tunes, and puts one in its place"
    )
    return Verdict.REPLACED, finding("is-a-link", message, "remove it", Severity.ERROR)


def _target(path: Path) -> str:
    try:
        return str(path.readlink())[:200]
    except OSError:  # it is gone by now
        return "somewhere"

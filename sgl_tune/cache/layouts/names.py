"""The names of what we write into a cache folder, and what a key looks like."""

from __future__ import annotations

import re

MANIFEST = "sgl-tune.json"
LOCK = ".sgl-tune.lock"
JOURNAL = ".sgl-tune.journal"
BROKEN = ".broken"
PRIVATE = ".sgl-tune-"
SHORTEST_KEY = 4
KEY = re.compile(rf"[0-9a-f]{{{SHORTEST_KEY},64}}")
_TEMPORARY = re.compile(r"\.sgl-tune-\d+-[0-9a-f]{8}\.tmp")


def is_temporary(name: str) -> bool:
    return bool(_TEMPORARY.fullmatch(name))


def is_private(folder: str) -> bool:
    """Whether only our own commands make folders of this name. What they stage, remove or download there is
    no part of a cache or a store."""
    return folder.startswith(PRIVATE)


def is_unfinished(name: str) -> bool:
    """Whether it is part of a write of ours that was cut short, and so is settled with the lock alone."""
    return name == JOURNAL or is_temporary(name)

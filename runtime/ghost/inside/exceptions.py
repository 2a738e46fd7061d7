"""Findings that do not make a record inexact: each with its reason and the real start that proves it.

An entry names one function. A whole library, or a value that decides a branch, must never stand here.
"""

from __future__ import annotations

from typing import NamedTuple


class Harmless(NamedTuple):
    kind: str
    name: str
    why: str
    proof: str


HARMLESS: tuple[Harmless, ...] = ()


def is_harmless(kind: str, name: str) -> bool:
    """Whether a finding stands in the list."""
    return (kind, name) in _NAMED


_NAMED = {(one.kind, one.name) for one in HARMLESS}

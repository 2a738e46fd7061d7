"""Tables at a model's ends, beside the usual: data, no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlacesConfig:
    """A table of positions that are learned, and how many of its rows stand before that of the first."""

    name: str
    before: int = 0


@dataclass(frozen=True, slots=True)
class TablesConfig:
    """A vocabulary's tables, where rows are wider, and the matrices between them: whole on every rank."""

    width: int
    into: str
    out: str

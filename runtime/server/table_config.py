"""Tables at a model's ends, beside the usual: data, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.bounds import check_model


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


@dataclass(frozen=True, slots=True)
class ScoresConfig:
    """In place of a head: a matrix of so many `labels`, behind others with a relu between. Without any, a
    prompt's last row is the answer."""

    names: tuple[str, ...] = ()
    labels: int = 0
    bias: bool = False

    def __post_init__(self) -> None:
        check_model(self)

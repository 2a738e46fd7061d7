"""Tables at a model's ends, beside the usual: data, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
class AddedRowsConfig:
    """Tables of positions and of types of tokens, of each of which a row is added to a token's. With
    `padding`, positions are counted without such tokens, behind theirs."""

    name: str
    positions: int
    types: int
    padding: int | None = None

    def __post_init__(self) -> None:
        check_model(self)


@dataclass(frozen=True, slots=True)
class DenseConfig:
    """A matrix that sentence-transformers keeps in a folder of its own, beside a checkpoint."""

    folder: str
    inputs: int
    outputs: int
    bias: bool = True

    def __post_init__(self) -> None:
        check_model(self)


@dataclass(frozen=True, slots=True)
class ScoresConfig:
    """In place of a head: a matrix of so many `labels`, behind others that are opened `by` something.
    Without any, a row that `pools` a prompt's is the answer, behind `dense` matrices beside a checkpoint."""

    names: tuple[str, ...] = ()
    labels: int = 0
    bias: bool = False
    by: Literal["relu", "tanh"] = "relu"
    pools: Literal["last", "first", "mean"] = "last"
    dense: tuple[DenseConfig, ...] = ()
    scores_all: bool = False  # its rows, of which one is then the answer
    weights: tuple[str, ...] = ()  # of every second score, in float16, which are added up by them

    def __post_init__(self) -> None:
        check_model(self)

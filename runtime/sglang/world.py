"""How many processes a server command starts, read from its flags alone: before SGLang is there to ask."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """A server's processes: tp x pp ranks over `nodes`."""

    tp: int
    pp: int
    nodes: int

    @property
    def ranks(self) -> int:
        return self.tp * self.pp

    @property
    def devices(self) -> int:
        """GPUs of one node."""
        return max(1, self.ranks // self.nodes)


class _Quiet(ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        """SGLang's own parser refuses the same words, and says so."""
        raise ValueError(message)


def world_of(argv: Sequence[str]) -> World:
    """The world that flags ask for; one process where they cannot be read, which SGLang refuses itself."""
    parser = _Quiet(add_help=False, allow_abbrev=False)
    parser.add_argument("--tensor-parallel-size", "--tp-size", "--tp", dest="tp", type=int, default=1)
    parser.add_argument("--pipeline-parallel-size", "--pp-size", "--pp", dest="pp", type=int, default=1)
    parser.add_argument("--nnodes", type=int, default=1)
    try:
        known, _ = parser.parse_known_args(list(argv))
    except ValueError:
        return World(1, 1, 1)
    return World(*(max(1, size) for size in (known.tp, known.pp, known.nnodes)))

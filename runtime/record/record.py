"""A start of a server as data: the question, the cost of each phase, the tuned entries, and the ending."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from runtime.record import parts
from runtime.record.calls import Call
from runtime.record.checked import read
from runtime.record.layers import ConfigLookup, LayerCall
from runtime.record.settled import Resolved, Settled

SCHEMA = 4


class NotARecord(ValueError):
    """The file is not a record that this version reads."""


@dataclass(frozen=True)
class Record:
    schema_version: int
    asked: parts.Asked
    resolved: Resolved
    phases: tuple[parts.Phase, ...]
    ending: parts.Ending
    sizes: parts.Sizes | None
    inexact: tuple[parts.Inexact, ...]
    modules: tuple[parts.Module, ...]
    kernels: tuple[parts.Kernel, ...]
    keys: tuple[parts.Key, ...]
    files: tuple[parts.CacheFile, ...]
    counted: dict[str, int]  # what brought memory outside torch: graphs, nodes, communicators, ...
    cost: parts.Cost
    held: tuple[parts.Held, ...] = ()
    calls: tuple[Call, ...] = ()
    lacks: tuple[str, ...] = ()  # what the start came to and the record does not hold, each with the reason
    said: tuple[parts.Said, ...] = ()
    configs: tuple[ConfigLookup, ...] = ()  # files of Triton configurations that were looked for
    layers: tuple[LayerCall, ...] = ()

    @property
    def arguments(self) -> dict[str, Any]:
        return self.resolved.arguments

    @property
    def settled(self) -> Settled | None:
        return self.resolved.settled

    @property
    def exact(self) -> bool:
        return not self.inexact

    def phase(self, name: str) -> parts.Phase | None:
        """Return the phase of that name with the highest peak, or None if the start did not reach it."""
        found = [phase for phase in self.phases if phase.name == name]
        return max(found, key=lambda phase: phase.peak, default=None)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Record:
        """Read a record that anyone may have written: every field is checked, and nothing in it is run."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise NotARecord(f"not JSON: {error}") from None
        if not isinstance(data, dict) or data.get("schema_version") != SCHEMA:
            raise NotARecord(f"schema_version is not {SCHEMA}")
        try:
            return read(cls, data, "record")
        except TypeError as error:
            raise NotARecord(str(error)) from None

"""Forwards that an earlier start of the same server ran through torch: a later one takes what they allocated.

A captured forward allocates the same whatever the KV pool holds. Starts that differ in their memory fraction,
in which sizes they capture or in what their GPU holds share all forwards of one size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

from runtime.simulate.allocation import Allocation, Recording


@dataclass(frozen=True, slots=True)
class Forward:
    recording: Recording
    kernels: int


@dataclass(slots=True)
class KnownForwards:
    """Of one server; `again` begins the next start of it."""

    _forwards: dict[Hashable, Forward] = field(default_factory=dict)
    _seen: Counter[Hashable] = field(default_factory=Counter)

    def again(self) -> KnownForwards:
        self._seen.clear()
        return self

    def next_key(self, *what: Hashable) -> Hashable:
        """Two drafts capture forwards of one name: they are told apart by their turn."""
        self._seen[what] += 1
        return (*what, self._seen[what])

    def get(self, key: Hashable) -> Forward | None:
        return self._forwards.get(key)

    def learn(self, key: Hashable, recording: Recording, kernels: int) -> None:
        """A copy: what was recorded holds blocks of its own start's memory."""
        copies: dict[Allocation, Allocation] = {}
        steps = [
            (made, copies.setdefault(of, of.copy()) if made else copies[of]) for made, of in recording.steps
        ]
        self._forwards[key] = Forward(Recording(steps, list(recording.loops)), kernels)

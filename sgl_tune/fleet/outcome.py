"""What one node's next start of one deployment would do, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["fails", "tunes", "compiles", "unknown", "good"]
STATES: Mapping[State, str] = {
    "fails": "would end, or run into an error",
    "tunes": "would tune",
    "compiles": "would compile",
    "unknown": "could not be judged",
    "good": "would build nothing that is known here",
}
_ORDER = tuple(STATES)


@dataclass(frozen=True, slots=True)
class Fault:
    """A reason to build. `builds`: counts: entries of tactics by their op, or a store's items."""

    state: State
    code: str
    message: str
    remedy: str
    store: str = "tactics"
    builds: Mapping[str, int] = field(default_factory=dict, hash=False)
    of: int = 0  # the number of builds if nothing were there
    part: str = ""  # for tactics, the key

    @property
    def size(self) -> int:
        return sum(self.builds.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "store": self.store,
            "state": self.state,
            "message": self.message,
            "remedy": self.remedy,
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """The faults of a node. A fault in the state `good` is only a remark."""

    faults: tuple[Fault, ...] = ()

    @property
    def state(self) -> State:
        return min((fault.state for fault in self.faults), key=_ORDER.index, default="good")

    @property
    def bad(self) -> tuple[Fault, ...]:
        return tuple(fault for fault in self.faults if fault.state != "good")

    @property
    def rank(self) -> tuple[int, int]:
        """Return a sort key: the larger, the better."""
        return _ORDER.index(self.state), -len(self.bad)

"""What one node's next start of one deployment would do, and why; and the seconds that it would build: from
a measured start, else from a table, else unknown."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sgl_tune.errors import UsageError
from sgl_tune.reading import read_object

_HOW = "write one with `sgl-tune start-report --format json` of a start that found nothing"
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
        return {name: getattr(self, name) for name in ("code", "store", "state", "message", "remedy")}


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


class Row(NamedTuple):
    """The seconds that a stock start takes per entry of an op, at least and at most."""

    ops: tuple[str, ...]
    arch: str
    least: float
    most: float
    source: str


MEASURED = (
    Row(
        ("trtllm::fused_moe::gemm1", "trtllm::fused_moe::gemm2"),
        "sm90",
        0.419,
        1.063,
        "a stock start and five MoE shapes on an H200 (benchmarks/results: moved_root_cutlass.json,"
        " tuning_search.json)",
    ),
    Row(("fp8_gemm",), "sm90", 0.048, 0.063, "one shape on an H200 (docs/search.md)"),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost in seconds. `most`: None if a part of it was never measured."""

    least: float
    most: float | None
    sources: tuple[str, ...]

    def __str__(self) -> str:
        if self.most is None:
            return f"at least {self.least:.0f} s" if self.least else "not known"
        least, most = f"{self.least:.0f}", f"{self.most:.0f}"
        return f"{most} s" if least == most else f"{least} to {most} s"

    def to_json(self) -> dict[str, Any]:
        return {
            "least": round(self.least, 3),
            "most": None if self.most is None else round(self.most, 3),
            "sources": list(self.sources),
        }


@dataclass(frozen=True, slots=True)
class ColdStart:
    """A measured cold start. `saves`: the seconds that each store would have saved."""

    origin: str
    saves: Mapping[str, float]


def read_cold_start(path: Path) -> ColdStart:
    content = read_object(path, _HOW)
    phases = content.get("phases")
    if not isinstance(phases, list) or not phases or not all(isinstance(phase, dict) for phase in phases):
        raise UsageError(f"{path} is no report of a start: it has no phases", _HOW)
    saves: Counter[str] = Counter()
    for phase in phases:
        store, seconds = phase.get("store"), phase.get("saves_seconds")
        if isinstance(store, str) and type(seconds) in (int, float) and 0 < seconds < 1e6:
            saves[store] += seconds  # type: ignore[assignment]
    if not saves:
        raise UsageError(f"{path} describes a start that built nothing", _HOW)
    return ColdStart(str(path), dict(saves))


def cost_of(faults: Iterable[Fault], arch: str | None, cold: ColdStart | None) -> Cost | None:
    """Return the cost, or None if nothing is built. If one part has several faults, the largest counts."""
    largest: dict[tuple[str, str], Fault] = {}
    for fault in faults:
        known = largest.get((fault.store, fault.part))
        if fault.state in ("tunes", "compiles") and (known is None or fault.size > known.size):
            largest[fault.store, fault.part] = fault
    if not largest:
        return None
    costs = [_by_start(fault, cold) if cold else _by_rows(fault, arch) for fault in largest.values()]
    told = [cost for cost in costs if cost is not None]
    most = sum(cost.most or 0.0 for cost in told)
    is_known = len(told) == len(costs) and all(cost.most is not None for cost in told)
    sources = dict.fromkeys(source for cost in told for source in cost.sources)
    return Cost(sum(cost.least for cost in told), most if is_known else None, tuple(sources))


def _by_start(fault: Fault, cold: ColdStart) -> Cost | None:
    """Return a fault's cost by the measured seconds of its whole store. Only tactics cost in proportion."""
    seconds = cold.saves.get(fault.store)
    if seconds is None:
        return None
    part = min(1.0, fault.size / fault.of) if fault.of else 1.0
    if fault.store == "tactics" or part == 1.0:
        return Cost(seconds * part, seconds * part, (cold.origin,))
    return Cost(0.0, seconds, (cold.origin,))


def _by_rows(fault: Fault, arch: str | None) -> Cost | None:
    if fault.store != "tactics":
        return None
    least, most, sources, known = 0.0, 0.0, [], True
    for op, entries in fault.builds.items():
        row = next((row for row in MEASURED if op in row.ops and row.arch == arch), None)
        if row is None:
            known = known and not entries
            continue
        least += row.least * entries
        most += row.most * entries
        sources.append(row.source)
    return Cost(least, most if known and sources else None, tuple(dict.fromkeys(sources)))

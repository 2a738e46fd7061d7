"""Compares a ghost's record with the real start: whether both end alike, and how far their figures differ."""

from dataclasses import dataclass

from runtime.record.record import Record
from tests.ghost.real_starts import RealStart

MIB = 1 << 20
NAMED = 3  # reasons that a row has room for


@dataclass(frozen=True)
class Limits:
    """How far a record that calls itself exact may be off: a share of KV tokens, bytes of a peak."""

    tokens: float
    peak: int


ONE_GPU = Limits(1e-4, MIB)
SEVERAL_GPUS = Limits(1e-3, 4 * MIB)


@dataclass(frozen=True)
class Difference:
    phase: str
    bytes: int


@dataclass(frozen=True)
class Verdict:
    start: RealStart
    ending: str
    ends_alike: bool
    inexact: tuple[str, ...]
    tokens: float | None  # share; None where one of both has none
    peaks: tuple[Difference, ...]
    outside: tuple[Difference, ...]
    lacks: tuple[str, ...]  # phases of the real start that the ghost did not come to

    @property
    def exact(self) -> bool:
        return not self.inexact

    @property
    def limits(self) -> Limits:
        return ONE_GPU if self.start.gpus == 1 else SEVERAL_GPUS

    @property
    def within(self) -> bool:
        tokens = round(abs(self.tokens or 0.0), 9) <= self.limits.tokens
        return tokens and not self.lacks and all(abs(one.bytes) <= self.limits.peak for one in self.peaks)

    @property
    def good(self) -> bool:
        """Whether every start ends as the real one, and records that claim to be exact are within limits."""
        return self.ends_alike and (self.within or not self.exact)

    @property
    def because(self) -> str:
        if self.exact:
            return "exact"
        more = f" and {len(self.inexact) - NAMED} more" if len(self.inexact) > NAMED else ""
        return "not exact: " + ", ".join(self.inexact[:NAMED]) + more


def verdict(start: RealStart, record: Record) -> Verdict:
    ending = ending_of(record)
    tokens = None
    if start.kv_tokens and record.sizes:
        tokens = record.sizes.kv_tokens / start.kv_tokens - 1
    peaks = ((name, record.phase(name), real) for name, real in start.peaks.items())
    outside = ((name, record.phase(name), real) for name, real in start.outside.items())
    return Verdict(
        start=start,
        ending=ending,
        ends_alike=ending == start.ending,
        inexact=tuple(dict.fromkeys(f"{one.kind} {one.name}" for one in record.inexact)),
        tokens=tokens,
        peaks=tuple(Difference(name, ours.peak - real) for name, ours, real in peaks if ours),
        outside=tuple(Difference(name, ours.outside - real) for name, ours, real in outside if ours),
        lacks=tuple(name for name in start.peaks if record.phase(name) is None),
    )


def ending_of(record: Record) -> str:
    ending = record.ending
    if ending.how == "died":
        return f"dies in {ending.phase}"
    return ending.how


def worst(differences: tuple[Difference, ...]) -> Difference | None:
    return max(differences, key=lambda one: abs(one.bytes), default=None)

"""Compare two servers' accounts of one command, and what their complete starts tune."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sgl_tune.cache.asked import TunedOp
from sgl_tune.explain.account import Account, Argument
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.units import count

if TYPE_CHECKING:
    from sgl_tune.explain.survival import Survival

ABSENT = "no such argument"


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that differs. `why`: what the second server logged about it. `why_before`: the first."""

    group: str
    name: str
    before: Any
    after: Any
    why: tuple[str, ...] = ()
    why_before: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Two accounts of one command. `unasked`: why it is unknown what both tune; arguments are compared
    anyway."""

    before: Account
    after: Account
    plans: tuple[RecordedPlan, RecordedPlan] | None = None
    unasked: str | None = None
    caches: "tuple[Survival, ...]" = ()

    @property
    def differences(self) -> tuple[Difference, ...]:
        if not self.after.arguments:
            return ()
        found = [*_of_arguments(self.before, self.after), *_of_settled(self.before, self.after)]
        if self.plans is not None:
            found += _of_ops(*self.plans)
        return tuple(found)

    @property
    def says(self) -> str:
        if self.after.refused is not None or not self.after.settled:
            return f"{self.after.where}: {self.after.says}"
        changed = count(len(self.differences), "difference")
        if self.unasked is not None:
            return f"{changed}; what the two tune is not known: {self.unasked}"
        fates = dict.fromkeys(one.fate for one in self.caches)
        fate = f"its cache {' and '.join(fates)}" if fates else "nothing is tuned before or after"
        return f"{changed}; {fate}{self.before.doubt or self.after.doubt}"

    def to_json(self) -> dict[str, Any]:
        return {
            **self.after.to_json(),
            "says": self.says,
            "unasked": self.unasked,
            "differences": [asdict(one) for one in self.differences],
            "caches": [asdict(one) for one in self.caches],
        }


def _of_arguments(before: Account, after: Account) -> Iterator[Difference]:
    old, new = ({one.name: one for one in account.arguments} for account in (before, after))
    for name in {**old, **new}:
        absent = Argument(name, ABSENT, False, None, None, True, ())
        one, other = old.get(name, absent), new.get(name, absent)
        if (name in old and name in new) or not (one.is_default and other.is_default):
            for part, before_it, after_it in _changes(name, one.value, other.value):
                yield Difference("arguments", part, before_it, after_it, other.why, one.why)


def _changes(name: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differing values; of a structure, the parts that differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for part in {**before, **after}:
            yield from _changes(f"{name}.{part}", before.get(part), after.get(part))
    elif before != after:
        yield name, before, after


def _of_settled(before: Account, after: Account) -> Iterator[Difference]:
    if not before.settled or not after.settled:
        return
    for name in {**before.settled, **after.settled}:
        if name in before.settled and name in after.settled and before.settled[name] != after.settled[name]:
            yield Difference("settled", name, before.settled[name], after.settled[name])
    for name, old, new in (
        ("files", before.files, after.files),
        ("draft files", before.draft_files, after.draft_files),
    ):
        if old != new:
            yield Difference("files", name, list(old), list(new))


def _of_ops(before: RecordedPlan, after: RecordedPlan) -> Iterator[Difference]:
    old, new = _ops(before), _ops(after)
    for name in {**old, **new}:
        one, other = old.get(name), new.get(name)
        if one is None or other is None or set(one.keys) != set(other.keys):
            yield Difference("ops", name, _op(one), _op(other))


def _ops(plan: RecordedPlan) -> dict[str, TunedOp]:
    found: dict[str, TunedOp] = {}
    for number, cache in enumerate(plan.all_caches):
        found |= {f"{'draft ' if number else ''}{op.op} {op.runner}": op for op in cache.all_ops}
    return found


def _op(op: TunedOp | None) -> dict[str, Any] | None:
    return {"entries": len(op.keys), "buckets": list(op.buckets), "keys": list(op.keys)} if op else None

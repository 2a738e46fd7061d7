"""Compare two servers' accounts of one command, and what their complete starts tune; and print an account,
or a comparison of two."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sgl_tune.cache.asked import TunedOp
from sgl_tune.cli.out import Output
from sgl_tune.cli.table import columns_of
from sgl_tune.explain.account import Account, Argument
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.units import count

if TYPE_CHECKING:
    from sgl_tune.explain.survival import Survival

ABSENT = "no such argument"
_LABEL, _MOST_VALUE, _LONGEST = 26, 20, 160
_MOST_LINES = 12


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
    drafts = ("draft files", before.draft_files, after.draft_files)
    for name, old, new in (("files", before.files, after.files), drafts):
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


def show_account(out: Output, name: str, account: Account) -> None:
    out.line(f"{name}: {account.says}", style="bold" if account.exit_code == 0 else "red")
    out.line(account.where, indent=2)
    for left in account.not_asked:
        out.line(f"- {left}", indent=2, style="dim")
    for one in account.record.inexact:
        out.line(f"- not exact: {one.name}: {one.why}", indent=2, style="yellow")
    _show_rows(out, "arguments", [_row(one) for one in account.arguments if one.is_given or _is_news(one)])
    _show_rows(out, "settled", [(label(name), text_of(value), "") for name, value in account.settled.items()])
    files = [*account.files, *account.draft_files]
    _show_lines(out, "files, below the cache directory", files)
    _show_lines(out, "SGLang also said", account.said)


def show_comparison(out: Output, name: str, found: Comparison) -> None:
    out.line(f"{name}: {found.says}", style="bold")
    out.line(f"from  {found.before.where}: {found.before.says}", indent=2)
    out.line(f"to    {found.after.where}: {found.after.says}", indent=2)
    for one in found.caches:
        out.line(f"cache {one.says}", indent=2, style=None if one.fate == "survives" else "yellow")
        if one.fate == "survives":
            out.line("as long as CUDA, cuBLAS and cuDNN stay: `verify --target` compares them", indent=4)
    for group, mine in groupby(found.differences, key=lambda one: one.group):
        out.line()
        out.line(group, style="bold")
        for difference in mine:
            out.line(f"{difference.name}: {change_text(difference)}", indent=2)
            for line in difference.why:
                out.line(line, indent=6, style="dim")
            for line in difference.why_before:
                if line not in difference.why:
                    out.line(f"before: {line}", indent=6, style="dim")


def label(name: str) -> str:
    return name.replace("_", " ")


def text_of(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        if len(value) > 4 and all(isinstance(one, int) for one in value):
            return f"{len(value)} sizes, {min(value)} .. {max(value)}"
        return " ".join(map(text_of, value)) or "none"
    if isinstance(value, dict):
        return (", ".join(f"{name} {text_of(one)}" for name, one in value.items()) or "none")[:_LONGEST]
    return "none" if value is None else str(value)[:_LONGEST]


def change_text(one: Difference) -> str:
    if one.group == "ops":
        before, after = (_op_text(value) for value in (one.before, one.after))
        return f"{after}, under other keys" if before == after else f"{before} -> {after}"
    before, after = text_of(one.before), text_of(one.after)
    if before == after and isinstance(one.before, (list, tuple)):
        before, after = (" ".join(map(str, sizes)) for sizes in (one.before, one.after))
    return f"{before} -> {after}"


def _op_text(value: dict[str, Any] | None) -> str:
    if value is None:
        return "not asked"
    buckets = value["buckets"]
    return f"{count(value['entries'], 'entry')}, buckets {buckets[0]} .. {buckets[-1]}"


def _is_news(one: Argument) -> bool:
    """Whether the value looks different from the default. None and an empty list look alike."""
    return not one.is_default and text_of(one.value) != text_of(one.default)


def _row(one: Argument) -> tuple[str, str, str]:
    if one.is_given and one.given == one.value:
        source = "as asked"
    elif one.is_given:
        source = f"{text_of(one.given)} was asked"
    else:
        source = "the default" if one.is_default else f"the default is {text_of(one.default)}"
    return one.name, text_of(one.value), "; ".join([source, *(f'"{line}"' for line in one.why)])


def _show_rows(out: Output, title: str, rows: Sequence[tuple[str, str, str]]) -> None:
    if not rows:
        return
    if out.is_document:
        return out.table(columns_of(title.upper(), "VALUE", "WHY"), rows)
    out.line()
    out.line(title, style="bold")
    width = min(_MOST_VALUE, max(len(value) for _, value, _ in rows)) + 2
    for name, value, text in rows:
        apart = "  " if text and len(value) >= width else ""
        line = f"{name:<{_LABEL}}{'  ' if len(name) >= _LABEL else ''}{value:<{width}}{apart}{text}"
        out.line(line.rstrip(), indent=2, hanging=_LABEL + width)


def _show_lines(out: Output, title: str, lines: Sequence[str]) -> None:
    if lines:
        out.line()
        out.line(title, style="bold")
    for line in lines[:_MOST_LINES]:
        out.line(line, indent=2)
    if len(lines) > _MOST_LINES:
        out.line(f"and {len(lines) - _MOST_LINES} more", indent=2)

"""Print an account, or a comparison of two."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import columns_of
from sgl_tune.explain.account import Account, Argument
from sgl_tune.explain.compare import Comparison, Difference
from sgl_tune.units import count

_LABEL, _MOST_VALUE, _LONGEST = 26, 20, 160
_MOST_LINES = 12


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

"""A comparison of two starts, for a person: first whether the caches survive, then what differs."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from sgl_tune.cli.out import Output
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.explain.against import Comparison
from sgl_tune.explain.differences import Difference
from sgl_tune.explain.explain import PART_FIELDS
from sgl_tune.explain.fields import DEFAULT
from sgl_tune.explain.words import in_words
from sgl_tune.keys.plan_view import how_it_runs
from sgl_tune.keys.verdict import verdict_of
from sgl_tune.units import count

_STYLES = {"survives": "green", "is tuned again": "yellow", "survives in part": "yellow"}


def show_comparison(out: Output, found: Comparison) -> None:
    before, after = found.before, found.after
    out.line(f"{before.deployment.name}: {headline(found)}", style="bold")
    out.line(how_it_runs(before), indent=2)
    for text in way_text(found):
        out.line(text, indent=2)
    if after is None:
        out.line(f"SGLang {found.sglang} refuses this server: {found.refused}", indent=2, style="red")
    if found.command:
        out.line(refusal_text(found.command), indent=2, style="red")
    for text in found.flags:
        out.line(f"- {text}", indent=2, style="yellow")
    if after is None:
        return
    _show_caches(out, found)
    for group, mine in groupby(found.differences, key=lambda one: one.group):
        out.line()
        out.line(group, style="bold")
        for one in mine:
            _show(out, one)
    if not found.differences:
        out.line()
        out.line("Nothing that a rule looks at differs.")


def refusal_text(command: str) -> str:
    """Without the list of all that could have been chosen."""
    return f"{command.partition(' (choose from')[0]}. What follows compares the same arguments."


def headline(found: Comparison) -> str:
    """The answer to what was asked, in one line."""
    if found.after is None:
        return "refused there"
    changed = count(len(found.differences), "difference")
    if found.command:
        changed = f"refused there as it is written; {changed}"
    fates = dict.fromkeys(one.fate for one in found.caches)
    if not fates:
        return f"{changed}; nothing is tuned before or after"
    return f"{changed}; its cache {' and '.join(fates)}"


def way_text(found: Comparison) -> list[str]:
    before, after = found.before.deployment, found.after.deployment if found.after else None
    lines = [f"from  {_place(before)}: {verdict_of(found.before).says}"]
    if found.after and after:
        lines.append(f"to    {_place(after)}: {verdict_of(found.after).says}")
    return lines


def _place(deployment: Deployment) -> str:
    gpu = deployment.inputs.gpu
    return f"SGLang {deployment.sglang_version}, FlashInfer {deployment.flashinfer_version}, {gpu.name}"


def _show_caches(out: Output, found: Comparison) -> None:
    if not found.caches:
        return
    out.line()
    out.line(f"caches in {found.before.deployment.cache_dir}", style="bold")
    for one in found.caches:
        out.line(one.says, indent=2, style=_STYLES.get(one.fate))
        if one.fate == "survives":
            out.line("as long as CUDA, cuBLAS and cuDNN stay: `verify --target` compares them", indent=4)


def _show(out: Output, one: Difference) -> None:
    out.line(f"{one.label}: {change_text(one)}{when_text(one)}", indent=2)
    if one.group == "key" and one.field in PART_FIELDS:
        return  # its rule is told of the argument
    if one.why:
        out.line(one.why, indent=6, style="dim")
    if before_text(one):
        out.line(f"before: {before_text(one)}", indent=6, style="dim")


def before_text(one: Difference) -> str:
    """The rule that held before, where it is another and not just the default."""
    return "" if one.why_before in (DEFAULT, one.why) else one.why_before


def change_text(one: Difference) -> str:
    before, after = _text(one, one.before), _text(one, one.after)
    if before == after and one.group == "ops":
        return f"{after}, under other keys"
    if before == after and isinstance(one.before, list):
        before, after = (" ".join(map(str, sizes)) for sizes in (one.before, one.after))
    return f"{before} -> {after}"


def when_text(one: Difference) -> str:
    if one.since:
        return f" (since {one.since})"
    return f" (until {one.until})" if one.until else ""


def _text(one: Difference, value: Any) -> str:
    if one.group == "ops":
        return op_text(value)
    if one.group == "files" and isinstance(value, list):
        return f"{value[0]} .. {value[-1]}" if len(value) > 1 else "".join(value) or "none"
    if one.group == "key":
        return {None: "not in it", "": "empty"}.get(value, str(value))
    return in_words(one.field, value)


def op_text(value: dict[str, Any] | None) -> str:
    if value is None:
        return "not asked"
    buckets = value["buckets"]
    return f"{count(value['entries'], 'entry')}, buckets {buckets[0]} .. {buckets[-1]}"

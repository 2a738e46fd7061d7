"""An explanation, for a person: what is quiet is the default, or just what was asked for."""

from __future__ import annotations

from collections.abc import Sequence

from sgl_tune.cli.out import Output
from sgl_tune.explain.explain import Explained, ExplainedPart, Explanation
from sgl_tune.explain.fields import GROUPS, matters
from sgl_tune.explain.words import asked_text, in_words
from sgl_tune.keys.advice import advised
from sgl_tune.keys.plan import CachePlan, Plan
from sgl_tune.keys.plan_view import how_it_runs, show_verdict
from sgl_tune.units import count

_LABEL, _MOST_VALUE = 24, 20


def show_explanation(out: Output, plan: Plan, explanation: Explanation, everything: bool) -> None:
    chosen, server = plan.deployment, explanation.server
    show_verdict(out, plan, advised(plan), named=True)
    where = f"{server.gpu.name} ({server.gpu.arch})" if server.gpu.name.lower() != "cpu" else "CPU"
    out.line(how_it_runs(plan), indent=2)
    out.line(f"SGLang {chosen.sglang_version}, FlashInfer {chosen.flashinfer_version}, {where}", indent=2)
    for note in plan.notes:
        out.line(f"- {note}", indent=2, style="dim")
    shown = [one for one in explanation.fields if everything or is_news(one, explanation)]
    width = min(_MOST_VALUE, max((len(_value(one)) for one in shown), default=0)) + 2
    for group in GROUPS:
        _show_group(out, group, [one for one in shown if one.field.group == group], width)
    _show_key(out, f"key {explanation.server.key}", explanation.key_parts)
    if plan.draft is not None and explanation.draft_parts:
        title = f"key of the draft worker {plan.draft.key}: the same, but"
        _show_key(out, title, explanation.draft_parts)
    _show_caches(out, plan)
    if not everything:
        out.line()
        out.line(
            "What is the default, or just as asked, goes without saying: --all shows it too.", style="dim"
        )


def is_news(one: Explained, explanation: Explanation) -> bool:
    return not one.is_plain and matters(one.field, explanation.server)


def reason_text(one: Explained) -> str:
    """`why`, with what was asked where that is not what it became, and since when."""
    asked = ""
    if one.set is not None and not isinstance(one.set, dict) and one.set != one.value:
        asked = f"{asked_text(one.set)} was asked; "
    return f"{asked}{one.why}{since_text(one)}"


def since_text(one: Explained | ExplainedPart) -> str:
    return f" (since {one.since})" if one.since else ""


def _show_group(out: Output, group: str, shown: list[Explained], width: int) -> None:
    if not shown:
        return
    out.line()
    out.line(group, style="bold")
    for one in shown:
        show_row(out, one.label, _value(one), reason_text(one), width)


def show_row(out: Output, label: str, value: str, text: str, width: int) -> None:
    if len(label) >= _LABEL:
        out.line(label, indent=2)
        label = ""
    apart = "  " if len(value) >= width else ""
    out.line(f"{label:<{_LABEL}}{value:<{width}}{apart}{text}".rstrip(), indent=2, hanging=_LABEL + width)


def _value(one: Explained) -> str:
    return in_words(one.field.name, one.value)


def _show_key(out: Output, title: str, parts: Sequence[ExplainedPart]) -> None:
    out.line()
    out.line(title, style="bold")
    width = min(_MOST_VALUE, max(len(part.value) for part in parts)) + 2
    for part in parts:
        show_row(out, part.name, part.value or "empty", f"{part.why}{since_text(part)}", width)


def _show_caches(out: Output, plan: Plan) -> None:
    for cache, whose in ((plan.target, ""), (plan.draft, "of the draft ")):
        if cache is None or not cache.files:
            continue
        out.line()
        out.line(f"files {whose}".rstrip(), style="bold")
        out.line(f"{count(len(cache.files), 'file')} in {plan.deployment.cache_dir}/{cache.folder}", indent=2)
        for text in ops_text(cache):
            out.line(text, indent=2)


def ops_text(cache: CachePlan) -> list[str]:
    return [
        f"{op.op}: {count(len(op.keys), 'entry')}, buckets {op.buckets[0]} .. {op.buckets[-1]}"
        for op in cache.ops
    ]

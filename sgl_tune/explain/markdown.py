"""Explanations and comparisons as Markdown, for a pull request or a run book."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sgl_tune.explain.against import Comparison
from sgl_tune.explain.against_page import (
    before_text,
    change_text,
    headline,
    refusal_text,
    way_text,
    when_text,
)
from sgl_tune.explain.explain import Explanation
from sgl_tune.explain.fields import GROUPS
from sgl_tune.explain.page import is_news, reason_text, since_text
from sgl_tune.explain.words import in_words
from sgl_tune.keys.advice import advised
from sgl_tune.keys.plan import Plan
from sgl_tune.keys.plan_view import how_it_runs


def explanation_lines(plan: Plan, explanation: Explanation, everything: bool) -> Iterator[str]:
    deployment = plan.deployment
    yield f"## {deployment.name}: {advised(plan).says}"
    yield ""
    yield f"{how_it_runs(plan)}; SGLang {deployment.sglang_version}, {deployment.inputs.gpu.name}"
    for group in GROUPS:
        shown = [
            (one.label, in_words(one.field.name, one.value), reason_text(one))
            for one in explanation.fields
            if one.field.group == group and (everything or is_news(one, explanation))
        ]
        if shown:
            yield from ("", f"### {group}", "", *_table(("", "value", "why"), shown))
    parts = [
        (part.name, part.value or "empty", f"{part.why}{since_text(part)}") for part in explanation.key_parts
    ]
    yield from ("", f"### key `{explanation.server.key}`", "", *_table(("part", "value", "why"), parts))
    yield ""


def comparison_lines(found: Comparison) -> Iterator[str]:
    yield f"## {found.before.deployment.name}: {headline(found)}"
    yield ""
    yield from (f"* {text}" for text in way_text(found))
    if found.refused:
        yield f"* SGLang {found.sglang} refuses this server: {found.refused}"
    if found.command:
        yield f"* {refusal_text(found.command)}"
    yield from (f"* {text}" for text in found.flags)
    yield from (f"* cache {one.says}" for one in found.caches)
    rows = [
        (
            one.label,
            f"{change_text(one)}{when_text(one)}",
            one.why,
            before_text(one),
        )
        for one in found.differences
    ]
    if rows:
        yield from ("", *_table(("", "change", "why", "before"), rows))
    yield ""


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    titles = list(head)
    yield _row(titles)
    yield _row(["---"] * len(titles))
    yield from (_row(row) for row in rows)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

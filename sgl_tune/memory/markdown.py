"""A report for an issue or a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sgl_tune.memory.report import MemoryReport, cached_bytes
from sgl_tune.memory.side_by_side import compared, summary
from sgl_tune.memory.table import exactness, failure_text, heading, verdict
from sgl_tune.units import memory_bytes

_STARTS = ("verdict", "tightest in", "free", "KV tokens")


def report_markdown(report: MemoryReport, sweep: Mapping[str, MemoryReport]) -> Iterator[str]:
    text = verdict(report)[0]
    yield from (f"### {heading(report)}", "")
    yield "; ".join(filter(None, [f"**{text}**", report.not_modelled, exactness(report)]))
    if report.failure is not None:
        yield from ("", f"> {failure_text(report)}")
    if report.stack:
        yield from ("", "```", *reversed(report.stack), "```")
    rows = [
        (f"**{phase.name}**" if phase is report.peak else phase.name, *map(memory_bytes, amounts))
        for phase in report.phases
        for amounts in [
            (
                phase.persistent_bytes,
                phase.peak_bytes,
                cached_bytes(phase),
                phase.non_torch_bytes,
                phase.free_at_peak_bytes,
            )
        ]
    ]
    yield from _table(("phase", "leaves", "peak", "cached", "outside", "free"), rows)
    if report.held:
        yield from _table(
            ("who holds the GPU then", "size"), ((of.what, memory_bytes(of.bytes)) for of in report.held)
        )
    for remedy in report.remedies:
        yield f"- `{remedy.flags}` fits, {memory_bytes(remedy.free_at_peak_bytes)} free, {remedy.cost}"
    if report.what_if:
        yield from _table(("start", *_STARTS), _summaries({"as is": report, **report.what_if}))
    if report.ranks:
        yield from _table(("rank", *_STARTS), _summaries({of.rank_name: of for of in report.ranks}))
    if sweep:
        yield from _table(("sweep", *_STARTS), _summaries(sweep))
    for comparison in report.comparisons:
        titles = (comparison.title, "predicted", comparison.other, "difference")
        yield from _table(titles, map(compared, comparison.rows))
    yield from (f"- {note}" for note in report.notes)


def _summaries(reports: Mapping[str, MemoryReport]) -> Iterator[tuple[str, ...]]:
    yield from ((name, *summary(report)) for name, report in reports.items())


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for row in rows:
        cells = [cell.replace("|", "/") for cell in row]
        yield f"| {' | '.join(cells)} |"
    yield ""

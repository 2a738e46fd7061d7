"""The tables of a report as data. A terminal, Markdown and the HTML page show the same tables. The page needs
no network and no libraries, and is light or dark."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from sgl_tune.cli.table import Column, columns_of
from sgl_tune.memory.parts import ORDER, beyond_peak, peaking
from sgl_tune.memory.report import Answer, Comparison, MemoryReport, Row
from sgl_tune.memory.views import tables
from sgl_tune.memory.views.words import exactness, failure_text, heading, remedy_text, sizes_text, verdict
from sgl_tune.units import memory_bytes
from sgl_tune.web_page.render import rendered

_LARGEST = 5
_SUMMARY = columns_of("VERDICT", "TIGHTEST IN/", ">FREE", ">KV TOKENS")
_PAGE = Path(__file__).parent / "page"
_SCRIPTS = ("sweep.js", "script.js")
_CHART = (
    "What holds the GPU at the peak of each phase",
    "Point at a phase, or walk through them with the Tab key, for its parts and its largest allocations.",
)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the report. `marks`: "bad" or "peak" for a row that stands out, else ""."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    marks: tuple[str, ...] = ()
    below: str = ""

    def to_json(self) -> dict[str, object]:
        names = [one.title.capitalize() if one.title.isupper() else one.title for one in self.columns]
        pairs = zip(names, self.columns, strict=True)
        return {**asdict(self), "columns": [[name.replace("Kv", "KV"), one.right] for name, one in pairs]}


def phases(report: MemoryReport) -> Table:
    """Return a table with what each phase leaves, and the parts of the GPU at its peak."""
    rows, marks = [], []
    for phase in report.phases:
        is_failed = phase is report.failed
        free = report.oom.free_bytes if is_failed and report.oom else phase.free_at_peak_bytes
        sizes = (phase.peak_bytes, *beyond_peak(phase, report.total_bytes), free)
        left = "-" if is_failed else memory_bytes(phase.persistent_bytes)
        took = (f"{phase.seconds:.1f} s",) if report.whose.source == "measured" else ()
        rows.append(("\u2003" * phase.depth + phase.name, left, *map(memory_bytes, sizes), *took))
        marks.append("bad" if is_failed else "peak" if phase is report.peak else "")
    took = (">TOOK",) if report.whose.source == "measured" else ()
    columns = columns_of("PHASE/", ">LEAVES", ">PEAK", ">CACHED", ">OUTSIDE", ">FREE", *took)
    return Table("Phases", columns, tuple(rows), tuple(marks))


def held(report: MemoryReport) -> Table:
    """Return a table with what holds the GPU at the tightest moment."""
    total, at = report.total_bytes or 1, report.tightest
    rows = [(one.what, memory_bytes(one.bytes), f"{one.bytes / total:.1%}") for one in report.held]
    title = f"What holds the GPU at the peak of {at.name}" if at else ""
    columns = columns_of("WHAT/", ">SIZE", ">OF THE GPU")
    return Table(title, columns, tuple(rows))


def parts_by_phase(report: MemoryReport) -> Table:
    """Return a table with the shares at the peak of each phase that has its own peak; a row per share."""
    both = dict(zip(report.phases, report.parts, strict=True))
    shown = peaking(report.phases)
    shares = [{one.what: one.bytes for one in both[phase]} for phase in shown]
    names = [name for name in ORDER if any(name in of for of in shares)]
    rows = [(name, *(memory_bytes(of[name]) if name in of else "-" for of in shares)) for name in names]
    columns = columns_of("PART", *(f">{phase.name}" for phase in shown))
    return Table("What holds the GPU at the peak of each phase", columns, tuple(rows))


def largest(report: MemoryReport) -> Table:
    at = report.tightest
    found = at.largest[:_LARGEST] if at else ()
    columns = columns_of(">SIZE", "WHAT/", "WHERE/")
    rows = tuple((memory_bytes(one.bytes), one.what, one.where) for one in found)
    return Table(f"Largest allocations at the peak of {at.name}" if at else "", columns, rows)


def constants(report: MemoryReport) -> Table:
    total = memory_bytes(sum(one.bytes for one in report.constants))
    title = f"Memory outside torch: {total} of calibrated constants (±{memory_bytes(report.margin_bytes)})"
    columns = columns_of(">SIZE", "OF", "KNOWN FROM/")
    named = ((one, one.name if one.times == 1 else f"{one.times:,} x {one.name}") for one in report.constants)
    rows = tuple((memory_bytes(one.bytes), name, one.source) for one, name in named)
    return Table(title, columns, rows)


def _starts(title: str, first: str, reports: Mapping[str, MemoryReport], below: str = "") -> Table:
    rows = tuple((name, *summary(report)) for name, report in reports.items())
    marks = tuple("" if report.verdict == "fits" else "bad" for report in reports.values())
    return Table(title, (*columns_of(f"{first}/"), *_SUMMARY), rows, marks, below)


def summary(report: MemoryReport) -> tuple[str, str, str, str]:
    phase = report.run.failed_in or (report.peak.name if report.peak else "-")
    tokens = f"{report.sizes.kv_tokens:,}" if report.sizes.kv_tokens is not None else "-"
    free = memory_bytes(report.free_at_peak_bytes) if report.verdict == "fits" else "-"
    return ("OOM" if report.verdict == "oom" else report.verdict, phase, free, tokens)


def what_ifs(report: MemoryReport) -> Table:
    return _starts("What if", "START", {"as is": report, **report.what_if} if report.what_if else {})


def sweep(found: Mapping[str, MemoryReport]) -> Table:
    """Return a table with the KV cache and the free memory that each value of the sweep gives."""
    flag = next(iter(found), "").partition("=")[0]
    values = {name.partition("=")[2]: report for name, report in found.items()}
    best = highest_that_fits(found)
    below = f"Highest that fits: {best}" if best else "None of these fits."
    return _starts(f"Sweep of {flag}", flag.upper(), values, below)


def highest_that_fits(found: Mapping[str, MemoryReport]) -> str | None:
    fitting = [name for name, report in found.items() if report.verdict == "fits"]
    return fitting[-1] if fitting else None


def comparison(found: Comparison) -> Table:
    columns = columns_of("WHAT/", ">PREDICTED", f">{found.other.upper()}", ">DIFFERENCE")
    return Table(found.title, columns, tuple(map(_compared, found.rows)))


def _compared(row: Row) -> tuple[str, str, str, str]:
    shown = memory_bytes if row.in_bytes else "{:,}".format
    return (row.what, shown(row.predicted), shown(row.other), row.difference)


def beside(answer: Answer) -> Iterator[Table]:
    """Yield the tables that compare several starts, and predictions with what happened."""
    report = answer.report
    found: Iterable[Table] = (
        what_ifs(report),
        _starts("Ranks", "RANK", {one.whose.rank_name: one for one in report.ranks}),
        sweep(answer.sweep),
        *map(comparison, report.comparisons),
    )
    yield from (table for table in found if table.rows)


def render_page(found: Answer) -> str:
    report = found.report
    text, style = verdict(report)
    trust = [report.trust.not_modelled, exactness(report), failure_text(report)]
    shown = [
        tables.phases(report),
        tables.parts_by_phase(report),
        tables.largest(report),
        *tables.beside(found),
    ]
    data = {
        **found.to_json(),
        "heading": heading(report),
        "verdict_text": text,
        "verdict_style": style,
        "said": [*filter(None, trust)],
        "calls": [f"at {frame}" for frame in reversed(report.stack)],
        "helps": [[remedy_text(report, n), one.command] for n, one in enumerate(report.remedies)],
        "sizes_text": sizes_text(report),
        "tables": [table.to_json() for table in shown if table.rows],
        "provenance": [table.to_json() for table in [tables.constants(report)] if table.rows],
        "warnings": list(report.trust.warnings),
        "sources": list(report.trust.notes),
    }
    title = f"{heading(report)}, {report.whose.flags}"
    return rendered(_PAGE, _SCRIPTS, title, _CHART, data)

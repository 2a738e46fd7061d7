"""The words of a report (its verdict, how far to believe it, and what SGLang or torch said) and its tables
as data. A terminal, Markdown and the HTML page show the same tables. The page needs no network and no
libraries, and is light or dark."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from runtime.devices.readings import OutOfMemory
from runtime.server.units import GIB
from runtime.start.run_record import Phase
from sgl_tune.cli.table import Column, columns_of
from sgl_tune.memory.parts import ORDER, beyond_peak, peaking
from sgl_tune.memory.report import Answer, Comparison, MemoryReport, Row
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
_REASONS = 2
_EXACT = "exact (what torch counts up to ready, with random weights; not traffic, not a real checkpoint)"


def heading(report: MemoryReport) -> str:
    """Return the title: the model, the GPU and the ranks."""
    size, whose = memory_bytes(report.total_bytes), report.whose
    known = f"{whose.gpu}{' (assumed)' if whose.is_gpu_assumed else ''}"
    gpu = known if size in known else f"{known}, {size}"
    return f"{whose.title} on {gpu}: {whose.subtitle}"


def verdict_line(report: MemoryReport) -> str:
    """Return the verdict and what makes it uncertain."""
    parts = [verdict(report)[0], report.trust.not_modelled, exactness(report)]
    return "; ".join(filter(None, parts))


def verdict(report: MemoryReport) -> tuple[str, str]:
    """Return the verdict and its colour."""
    if report.refused:
        return f"REFUSED by SGLang: {report.refused}", "red"
    if report.oom is not None and report.failure is not None:
        return _out_of_memory(report, report.oom, report.failure.phase)
    if report.failure is not None:
        return f"FAILED in {report.failure.phase}", "red"
    if report.run.unfinished:
        return f"UNFINISHED: the run ended in {report.run.failed_in}", "red"
    least = f"{memory_bytes(report.free_at_peak_bytes)} free at the peak"
    where = f", in {report.peak.name}{_cached(report.peak, report.total_bytes)}" if report.peak else ""
    bar = f" (±{memory_bytes(report.margin_bytes)})"
    if report.is_inside_bar:
        return f"FITS, BARELY: {least}{where}{bar}", "yellow"
    return f"FITS: {least}{where}{bar}", "green"


def _out_of_memory(report: MemoryReport, oom: OutOfMemory, phase: str) -> tuple[str, str]:
    """Return the out-of-memory verdict. A prediction shows the error bar; a measured start has none."""
    tried = "the driver refused" if oom.by_driver else f"tried {memory_bytes(oom.tried_bytes)}"
    bar = f" (±{memory_bytes(report.margin_bytes)})" if report.margin_bytes else ""
    barely = ", inside the error bar," if report.is_inside_bar else ""
    text = f"{tried}, {memory_bytes(oom.free_bytes)} free{bar}, {memory_bytes(oom.allocated_bytes)} allocated"
    return f"OUT OF MEMORY{barely} in {phase}: {text}", "yellow" if barely else "red"


def _cached(phase: Phase, total: int) -> str:
    """Return what torch holds and does not use, as text. It gives some back before it fails."""
    cached, _ = beyond_peak(phase, total)
    return f", {memory_bytes(cached)} cached" if cached >= GIB else ""


def exactness(report: MemoryReport) -> str:
    """Return whether torch's numbers equal a real start's, else the first reasons why not. If the runtime
    core answered, return only that.
    """
    if report.whose.source == "core":
        return "by the runtime core, no server was asked"
    if report.whose.source == "measured" or report.refused:
        return ""
    if report.trust.exact:
        return _EXACT
    more = len(report.trust.inexact) - _REASONS
    reasons = "; ".join(report.trust.inexact[:_REASONS])
    return f"not exact: {reasons}{f'; and {more} more (--format json)' if more > 0 else ''}"


def failure_text(report: MemoryReport) -> str:
    """Return the exception's own words, as far as they are about this failure."""
    if report.failure is None:
        return ""
    message = report.failure.error
    if report.oom is not None or report.whose.source != "ghost":
        message = message.partition(": ")[2]
    if report.oom is not None and report.oom.by_driver:
        return message.partition("\n")[0]
    return message.partition(" If reserved but")[0]


def sizes_text(report: MemoryReport) -> str:
    sizes, facts = report.sizes, []
    if sizes.kv_tokens is not None:
        per_token = f" of {sizes.kv_bytes_per_token:,} bytes" if sizes.kv_bytes_per_token else ""
        fixed = f" (--max-total-tokens {sizes.kv_tokens})" if report.whose.source == "ghost" else ""
        facts.append(f"KV pool {sizes.kv_tokens:,} tokens{per_token}{fixed}")
    if sizes.states is not None:
        facts.append(f"{sizes.states:,} states of {sizes.state_bytes or 0:,} bytes")
    for text, value in (
        ("mem fraction {:g}", sizes.mem_fraction_static),
        ("{:,} requests per rank", sizes.max_running_requests),
        ("dummy batch {:,} rows", sizes.dummy_batch_rows),
        ("chunk {:,} per rank", sizes.chunked_prefill_size),
    ):
        facts += [] if value is None else [text.format(value)]
    for name, graphs in (("prefill", sizes.prefill_graphs), ("decode", sizes.decode_graphs)):
        facts += [f"{len(graphs)} {name} graphs to {max(graphs):,}"] if graphs else []
    return f"Sizes: {', '.join(facts)}" if facts else ""


def remedy_text(report: MemoryReport, number: int) -> str:
    one = report.remedies[number]
    return f"{one.flags}: fits, {memory_bytes(one.free_at_peak_bytes)} free at the peak, {one.cost}"


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
    shown = [phases(report), parts_by_phase(report), largest(report), *beside(found)]
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
        "provenance": [table.to_json() for table in [constants(report)] if table.rows],
        "warnings": list(report.trust.warnings),
        "sources": list(report.trust.notes),
    }
    title = f"{heading(report)}, {report.whose.flags}"
    return rendered(_PAGE, _SCRIPTS, title, _CHART, data)

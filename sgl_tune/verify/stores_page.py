"""Print the stores in `verify`: items counted by fate, and each kind of fault once with an example."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import columns_of
from sgl_tune.units import count
from sgl_tune.verify.findings import FileReport, Finding, Severity, Verdict
from sgl_tune.verify.stores import StoreReport

STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "dim"}
_COLUMNS = columns_of("NEXT START", ">ITEMS", "WHICH/")
_SAYS = {
    Verdict.HIT: "found when asked for",
    Verdict.REPLACED: "compiled again",
    Verdict.IGNORED: "not looked at",
    Verdict.CRASH: "would end the start",
}


def show_stores(out: Output, stores: Sequence[StoreReport]) -> None:
    for report in stores:
        if not report.files and not report.findings:
            continue
        out.line(f"{report.store}: {report.stored.path}", style="bold")
        out.table(_COLUMNS, _rows(report.files))
        for found, names in _kinds(report):
            out.line(
                f"{found.severity.value} {found.code}: {names}{found.message}", style=STYLES[found.severity]
            )
            out.line(f"-> {found.remedy}", indent=4)
        out.line()


def stores_line(stores: Sequence[StoreReport]) -> str:
    fates = Counter(file.verdict for report in stores for file in report.files)
    total = count(sum(fates.values()), "item")
    said = [f"{fates[verdict]:,} {_SAYS[verdict]}" for verdict in _SAYS if fates[verdict]]
    return f"of {total} in {count(len(stores), 'store')}, {', '.join(said) or 'none'}"


def _rows(files: Sequence[FileReport]) -> Iterator[tuple[object, ...]]:
    for verdict in dict.fromkeys(file.verdict for file in files):
        mine = [file for file in files if file.verdict is verdict]
        more = f" and {len(mine) - 1:,} more" if len(mine) > 1 else ""
        yield (verdict.value, f"{len(mine):,}", f"{mine[0].path.name}{more}")


def _kinds(report: StoreReport) -> Iterator[tuple[Finding, str]]:
    """Yield one finding of each code and severity, because 10,000 moved kernels have one cause."""
    first: dict[tuple[str, Severity], tuple[Finding, str]] = {}
    times: Counter[tuple[str, Severity]] = Counter()
    for file in report.files:
        for found in file.findings:
            key = (found.code, found.severity)
            times[key] += 1
            first.setdefault(key, (found, file.path.name))
    for found in report.findings:
        yield found, ""
    for key, (found, name) in first.items():
        more = f" (and {times[key] - 1:,} more like it)" if times[key] > 1 else ""
        yield found, f"{name}{more}: "

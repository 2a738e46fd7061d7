"""The last line of `verify`: what the next start loads, or that no server was asked. Above it stand the
stores: items counted by fate, and each kind of fault once with an example."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import columns_of
from sgl_tune.units import count, some
from sgl_tune.verify.findings import FileReport, Finding, Severity, Verdict, VerifyReport
from sgl_tune.verify.stores import StoreReport

if TYPE_CHECKING:
    from sgl_tune.keys.plan import Plan

STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "dim"}
_COLUMNS = columns_of("NEXT START", ">ITEMS", "WHICH/")
_SAYS = {
    Verdict.HIT: "found when asked for",
    Verdict.REPLACED: "compiled again",
    Verdict.IGNORED: "not looked at",
    Verdict.CRASH: "would end the start",
}


def verdict_line(
    report: VerifyReport,
    plans: "Sequence[Plan]",
    ok: bool,
    stores: str | None = None,
    doubts: Sequence[str] = (),
    server: str | None = None,
    replay: str | None = None,
) -> str:
    """Return the last line. `stores`: the sentence about stores. `doubts`: versions that are not known.
    `server`: what a server's own start made of the files. `replay`: how many choices still hold."""
    tactics = [file for file in report.files if file.store == "tactics"]
    loads = _loads(tactics, plans, server) if tactics or plans or server or stores is None else None
    one = ": it is asked about a single deployment, -f FILE:NAME" if len(plans) > 1 else ""
    asked = server or (f"no server was asked{one}" if plans else None)
    says = "; ".join(filter(None, [replay, loads, stores, asked]))
    unknown = [found.message for found in report.findings if found.code == "flashinfer-unknown"]
    says = "; ".join([says, *(doubt for doubt in [*doubts, *unknown] if doubt not in says)])
    away = next((found.message for found in report.findings if found.code == "cache-away"), None)
    if away is not None:
        return f"not known: {away}"
    return f"good: {says}" if ok else f"bad: {_faults(report)}; {says}"


def _faults(report: VerifyReport) -> str:
    """Return the codes of the worst severity, because a file that loads may still fail to be saved."""
    faults = list(report.all_findings())
    worst = Severity.ERROR if any(found.severity is Severity.ERROR for found in faults) else Severity.WARNING
    return some(list(dict.fromkeys(found.code for found in faults if found.severity is worst)))


def _loads(files: Sequence[FileReport], plans: "Sequence[Plan]", server: str | None) -> str:
    used = sum(file.verdict in (Verdict.HIT, Verdict.PARTIAL) for file in files)
    unknown = sum(file.verdict is Verdict.UNKNOWN for file in files)
    loads = f"{used} of {count(len(files), 'file')}"
    if unknown:
        return f"whether {unknown} of {count(len(files), 'file')} load is not known"
    if server is not None:
        return f"the next start loads {loads}"
    if not plans:
        verb = "loads" if len(files) == 1 else "load"
        return f"{loads} {verb}, judged by themselves: no deployment is given"
    from sgl_tune.keys.verdict import verdict_of

    idle = [(plan.deployment.name, verdict_of(plan).says) for plan in plans if plan.is_idle]
    if len(idle) == len(plans):
        return f"the next start loads no file: {_idle(idle)}"
    said = [f"the next start loads {loads}"]
    if idle:
        said.append(_idle(idle))
    if any(verdict_of(plan).tunes == "unplanned" for plan in plans):
        said.append("whether they hold all that it tunes is not known")
    said += dict.fromkeys(aside for plan in plans if (aside := plan.deployment.not_modelled))
    return "; ".join(said)


def _idle(said: Sequence[tuple[str, str]]) -> str:
    names = ", ".join(name for name, _ in said)
    return f"{names} {said[0][1]}" if len(said) == 1 else f"{names} tune nothing"


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
        yield (verdict.value, f"{len(mine):,}", some([file.path.name for file in mine], 1))


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

"""The human output of `sgl-tune verify`: files by folder, findings, and the last line."""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter

from sgl_tune.cache.rank_names import names_text
from sgl_tune.cli.out import Output
from sgl_tune.cli.table import columns_of
from sgl_tune.units import some
from sgl_tune.verify.findings import FileReport, Finding, Severity, Verdict, VerifyReport
from sgl_tune.verify.replayed import ReplayedCache, replay_line
from sgl_tune.verify.stores import StoreReport
from sgl_tune.verify.verdict_line import STYLES, show_stores

_COLUMNS = columns_of("NEXT START", ">FILES", "WHICH/")
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_MESSAGE = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_MESSAGE, ":": "%3A", ",": "%2C"}


def show_report(
    out: Output,
    report: VerifyReport,
    stores: Sequence[StoreReport],
    replayed: Sequence[ReplayedCache],
    verdict: str,
    ok: bool,
) -> None:
    show_stores(out, stores)
    place = attrgetter("where")
    of_stores = {found for one in stores for found in one.findings}
    findings = sorted((found for found in report.findings if found not in of_stores), key=place)
    said = set[str]()
    by_place = {where: list(found) for where, found in groupby(findings, key=place)}
    tactics = (file for file in report.files if file.store == "tactics")
    for folder, group in groupby(tactics, key=lambda file: str(file.path.parent)):
        files = list(group)
        out.line(folder, style="bold")
        mine: dict[Verdict, list[FileReport]] = {}
        for file in files:
            mine.setdefault(file.verdict, []).append(file)
        out.table(_COLUMNS, [(one.value, len(its), _which(its)) for one, its in mine.items()])
        of_files = _distinct(files)
        for found, where in of_files.items():
            _show_finding(out, found, f"{_which(where)}: {found.message}", said)
        for found in by_place.pop(folder, ()):
            if found._replace(where="") not in of_files:
                _show_finding(out, found, found.message, said)
        out.line()
    for found in chain.from_iterable(by_place.values()):
        _show_finding(out, found, str(found), said)
    for one in replayed:
        out.line(f"replay of {one.path.name} in {one.path.parent.name}: {replay_line([one])}")
    out.line(verdict, style="green" if ok else "red")


def _which(files: Sequence[FileReport]) -> str:
    names = names_text([file.path.name for file in files])
    return names or some([file.path.name for file in files], 1)


def _distinct(files: Sequence[FileReport]) -> dict[Finding, list[FileReport]]:
    """Return each finding with its files. "ranks-differ" is left out: it is printed once per group."""
    found: dict[Finding, list[FileReport]] = {}
    for file in files:
        for item in file.findings:
            if item.code != "ranks-differ":
                found.setdefault(item, []).append(file)
    return found


def _show_finding(out: Output, found: Finding, message: str, said: set[str]) -> None:
    """Print a finding. `said`: the long remedies printed so far, which are not repeated."""
    out.line(f"{found.severity.value} {found.code}: {message}", style=STYLES[found.severity])
    out.line(f"-> {found.remedy}" if _is_new(found.remedy, said) else "-> as above", indent=4)


def _is_new(remedy: str, said: set[str]) -> bool:
    is_new = remedy not in said
    said |= {remedy} if len(remedy) > 80 else set()
    return is_new


def github_lines(report: VerifyReport) -> Iterator[str]:
    said = set[str]()
    of_files = ((one, file.path) for file in report.files for one in file.findings)
    for found, path in chain(of_files, ((one, None) for one in report.findings)):
        place = f"file={_escaped(str(path), _PROPERTY)}," if path else ""  # a folder cannot be annotated
        text = f"{found}; {found.remedy}" if _is_new(found.remedy, said) else f"{found}"
        title = _escaped(found.code, _PROPERTY)
        yield f"::{_LEVELS[found.severity]} {place}title={title}::{_escaped(text, _MESSAGE)}"


def _escaped(text: str, table: dict[str, str]) -> str:
    return "".join(table.get(letter, letter) for letter in text)

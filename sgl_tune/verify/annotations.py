"""Findings as a GitHub workflow's annotations: a line each, which its log shows beside the file."""

from __future__ import annotations

from collections.abc import Iterator

from sgl_tune.verify.findings import Finding, Severity, VerifyReport

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_MESSAGE = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_MESSAGE, ":": "%3A", ",": "%2C"}


def github_lines(report: VerifyReport) -> Iterator[str]:
    for file in report.files:
        for found in file.findings:
            yield _line(found, f"file={_escaped(str(file.path), _PROPERTY)},")
    for found in report.findings:  # of a folder or a deployment: no annotation can stand beside it
        yield _line(found, "")


def _line(found: Finding, place: str) -> str:
    message = _escaped(f"{found}; {found.remedy}", _MESSAGE)
    return f"::{_LEVELS[found.severity]} {place}title={_escaped(found.code, _PROPERTY)}::{message}"


def _escaped(text: str, table: dict[str, str]) -> str:
    return "".join(table.get(letter, letter) for letter in text)

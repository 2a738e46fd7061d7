"""Every finding is documented, and nothing else is; severities decide whether a report is good."""

import re
from pathlib import Path

import pytest

from sgl_tune.verify.findings import CODES, FileReport, Severity, Verdict, VerifyReport, finding

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs" / "findings.md"


def test_every_code_has_its_section_once() -> None:
    sections = re.findall(r"^### `([a-z0-9-]+)`$", DOCS.read_text(), re.MULTILINE)
    assert sorted(sections) == sorted(CODES)


def test_every_verdict_has_its_line() -> None:
    rows = re.findall(r"^\| `([a-z]+)` \|", DOCS.read_text(), re.MULTILINE)
    assert rows == [verdict.value for verdict in Verdict]


def test_every_code_is_used() -> None:
    source = "".join(
        path.read_text() for path in (ROOT / "sgl_tune" / "verify").glob("*.py") if path.name != "findings.py"
    )
    assert [code for code in CODES if f'"{code}"' not in source] == []


@pytest.mark.parametrize(
    ("code", "good", "good_if_strict"),
    [("not-json", False, False), ("policy-misses", True, False), ("old-runs", True, True)],
)
def test_errors_fail_and_warnings_fail_when_strict(code: str, good: bool, good_if_strict: bool) -> None:
    found = finding(code, "message", "remedy")
    reports = VerifyReport((FileReport(Path("f"), Verdict.HIT, (found,)),), ()), VerifyReport((), (found,))
    for report in reports:
        assert (report.ok(), report.ok(strict=True)) == (good, good_if_strict)


def test_a_severity_may_be_lowered() -> None:
    assert finding("crash-elsewhere", "m", "r", Severity.WARNING).severity is Severity.WARNING


def test_a_finding_of_a_cache_says_where_apart_from_what() -> None:
    found = finding("old-runs", "2 results in runs/", "prune", where=Path("/c/key"))
    assert found.to_json()["where"] == "/c/key" and found.to_json()["message"] == "2 results in runs/"
    assert str(found) == "/c/key: 2 results in runs/"
    assert str(finding("no-entries", "it holds no entry", "warm")) == "it holds no entry"

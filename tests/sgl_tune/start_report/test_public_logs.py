"""Starts that people published, made again from their figures: public/README.md names where they stand."""

import re
from pathlib import Path

import pytest

from sgl_tune.start_report.report import StartReport, read_start

LOGS = sorted((Path(__file__).parent / "public").glob("*.log"))
FAILED = {
    "2025-03-gemma3-tp1": ("http server", None),
    "2026-08-deepseek-v4-npu-dp4-died": ("warm-up request", "RuntimeError"),
    "2026-10-draft-out-of-memory": ("scheduler", "torch.OutOfMemoryError"),
}
CUT = ("2026-06-piecewise-tail", "2026-08-ling-tp1", "2026-08-deepseek-v4-npu-dp4-died")  # first lines
ELAPSED = re.compile(r"(Load weight|Capture (?:\S+ ){1,3}graph) end.*?(?:elapsed=|elapsed: )(\d+\.\d+)")


def _report(path: Path) -> StartReport:
    return read_start(path, None, None, lambda count: None)


def test_there_are_at_least_ten_logs() -> None:
    assert len(LOGS) >= 10


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_nearly_all_of_the_time_is_explained_and_never_more_than_all(path: Path) -> None:
    report = _report(path)
    named = sum(phase.seconds for phase in report.phases)
    assert 0.95 * report.wall_seconds <= named <= report.wall_seconds + 1e-6
    assert named + report.unexplained_seconds == pytest.approx(report.wall_seconds)
    spans = sorted(report.spans)
    assert all(
        before.end <= after.begin for before, after in zip(report.spans, report.spans[1:], strict=False)
    )
    assert sum(span.seconds for span in spans) == pytest.approx(report.wall_seconds)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_what_a_line_says_that_it_took_is_what_its_phase_took(path: Path) -> None:
    """SGLang times weights and graphs itself. Its stamps are whole seconds, and the slowest rank counts."""
    report = _report(path)
    took = {name: 0.0 for name in ("weights", "graphs")}
    longest: dict[tuple[str, int], float] = {}
    seen: dict[tuple[str, str], int] = {}
    for line in path.read_text().splitlines():
        if told := ELAPSED.search(line):
            rank = line.split("]")[0].partition(" ")[2][9:]
            seen[rank, told[1]] = seen.get((rank, told[1]), -1) + 1
            key = (told[1], seen[rank, told[1]])
            longest[key] = max(longest.get(key, 0.0), float(told[2]))
    for (what, _), seconds in longest.items():
        took["weights" if "weight" in what else "graphs"] += seconds
    for kind, seconds in took.items():
        found = sum(phase.seconds for phase in report.phases if phase.name.endswith(kind))
        tuned = sum(p.seconds for p in report.phases if p.name == "tactics")
        if seconds and path.stem not in CUT:
            assert found - 2 * len(longest) <= seconds <= found + tuned + 2 * len(longest), kind


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_start_that_is_not_ready_says_where_it_stands(path: Path) -> None:
    report = _report(path)
    assert report.ready is (path.stem not in FAILED)
    if not report.ready:
        phase, error = FAILED[path.stem]
        assert report.stands_in == phase and bool(report.last_words)
        assert (report.failure.text.partition(":")[0] if report.failure else None) == error

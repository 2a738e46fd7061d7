"""The table of lines: each row reads its line, and says of its releases what their wheels say."""

from __future__ import annotations

import json

import pytest

from runtime.server.releases import RELEASES
from runtime.server.stores import BY_ID
from sgl_tune.start_report.marks import MARKS, Edge, Mark
from sgl_tune.start_report.phases import PHASES
from tests.oracle.start_lines import RECORDED, SAMPLES, mark_of, of_sglang

PRINTED: dict[str, list[int]] = json.loads(RECORDED.read_text())
VERSIONS = [row.version for row in RELEASES]


def _releases(mark: Mark) -> list[str]:
    last = mark.until or VERSIONS[-1]
    return VERSIONS[VERSIONS.index(mark.since) : VERSIONS.index(last) + 1]


@pytest.mark.parametrize("mark", [m for m in MARKS if of_sglang(m)], ids=lambda mark: mark.literal[:50])
def test_a_line_is_printed_by_the_releases_that_its_row_names_and_no_other(mark: Mark) -> None:
    numbers = {number for number, line in enumerate(SAMPLES) if mark_of(line) is mark}
    assert [v for v in VERSIONS if numbers & {*PRINTED[v]}] == _releases(mark)


def test_every_row_of_a_release_has_a_line_and_is_found_by_its_first_letters() -> None:
    assert {mark_of(line) for line in SAMPLES} == {mark for mark in MARKS if of_sglang(mark)}
    for line in SAMPLES:
        assert line.startswith(mark_of(line).literal) and len(mark_of(line).literal) >= 4


def test_every_row_speaks_of_phases_that_there_are() -> None:
    for mark in MARKS:
        if mark.edge not in (Edge.passes, Edge.tells):
            assert mark.phase in PHASES
        assert all(name in PHASES and PHASES[name].is_between for name in mark.then)
    named = {name for mark in MARKS for name in mark.then}
    points = {mark.phase for mark in MARKS}
    assert all(PHASES[name].until & points for name in named)


def test_every_store_of_a_phase_is_one_of_the_stores() -> None:
    assert {phase.store for phase in PHASES.values()} - {None} <= BY_ID.keys()

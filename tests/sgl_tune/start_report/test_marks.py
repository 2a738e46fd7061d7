"""The table of lines speaks of phases and stores that there are."""

from sgl_tune.server_log.marks import MARKS, Edge
from sgl_tune.start_report.timeline import PHASES
from sgl_tune.stores.rows import BY_ID


def test_every_row_speaks_of_phases_that_there_are() -> None:
    for mark in MARKS:
        if mark.edge not in (Edge.passes, Edge.tells):
            assert mark.phase == "graphs" or mark.phase in PHASES
        assert all(PHASES[name].until for name in mark.then)
    named = {name for mark in MARKS for name in mark.then}
    points = {mark.phase for mark in MARKS} | {"prefill graphs"}
    assert all(points.intersection(PHASES[name].until) for name in named)


def test_every_store_of_a_phase_is_one_of_the_stores() -> None:
    assert {phase.store for phase in PHASES.values()} - {None} <= BY_ID.keys()

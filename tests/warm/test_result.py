"""What a warm came to: whether later starts are spared the search."""

from dataclasses import replace
from pathlib import Path

import pytest

from sgl_tune.cache.asked import CachePlan
from sgl_tune.cache.store import Written
from sgl_tune.cli.out import Output
from sgl_tune.recorded.plan import RecordedPlan, Whose
from sgl_tune.warm.proof import Forward, Proof
from sgl_tune.warm.result import CacheReport, Failure, WarmCache, Warmed
from sgl_tune.warm.result_page import show_warmed

FORWARD = Forward(rows=8, tuned_ms=1.0, untuned_ms=2.0, gain=2.0, turns=3, clear=True)
NOTHING = {"tuned": [], "untuned": [], "captured": []}


def warmed(*failed: Failure, misses: tuple[str, ...] | None) -> Warmed:
    """`misses`: of the proof; None where none was asked for."""
    proof = None if misses is None else Proof(2, 2, misses, (), {}, 0.1, FORWARD, NOTHING, 0, None)
    report = CacheReport(frozenset(), frozenset(), failed, 0, 1.0, {}, {})
    cache = WarmCache(CachePlan("folder", (), ()), report, Written((), "0", 0, 0, 0, ()), proof)
    return Warmed(RecordedPlan(Whose("m", "org/m", Path("/c")), ()), (cache,), {}, {}, None, 1)


@pytest.mark.parametrize(
    ("misses", "failed", "good"),
    [((), (), True), (("key",), (), False), (None, (), True), (None, (Failure("op", 8, {}),), False)],
)
def test_an_entry_that_every_start_searches_again_is_no_success(
    misses: tuple[str, ...] | None, failed: tuple[Failure, ...], good: bool
) -> None:
    assert warmed(*failed, misses=misses).is_good is good


@pytest.mark.parametrize(
    ("gain", "clear", "said"),
    [
        (2.0, True, "forward of 8 rows: 1.00 ms tuned, 2.00 ms untuned: 2.00x faster"),
        (1.1, False, "forward of 8 rows: no clear difference in 3 turns on this machine"),
    ],
)
def test_times_are_shown_where_they_clearly_differ(
    gain: float, clear: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    came = warmed(misses=())
    proof = came.caches[0].proof
    assert proof is not None
    shown = replace(proof, forward=replace(FORWARD, gain=gain, clear=clear))
    show_warmed(Output(), replace(came, caches=(replace(came.caches[0], proof=shown),)))
    assert [line.strip() for line in capsys.readouterr().out.splitlines() if "forward of" in line] == [said]

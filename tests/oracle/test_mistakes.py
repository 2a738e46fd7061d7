"""Commands with one mistake, against what the releases' own parsers answered."""

from __future__ import annotations

import os

import pytest

from tests.oracle.mistakes import MISTAKES, RELEASES, Judged, judged, random_cases, recorded
from tests.oracle.wheels import WORK


@pytest.fixture(scope="module")
def answers() -> list[Judged]:
    return [judged(case, theirs) for case, theirs in recorded()]


def test_what_sglang_refuses_is_refused_and_what_it_takes_is_taken(answers: list[Judged]) -> None:
    assert [one for one in answers if not one.agree] == []


def test_of_mistyped_flags_the_one_that_was_meant_is_suggested_first(answers: list[Judged]) -> None:
    typed = [one for one in answers if one.case.meant and one.refused_there]
    missed = [(one.case.words, one.suggested) for one in typed if not one.found]
    assert len(typed) > 60 and len(missed) / len(typed) < 0.05, missed


def test_recorded_commands_are_of_every_mistake_and_three_releases(answers: list[Judged]) -> None:
    kinds = {(one.case.release, one.case.mistake) for one in answers}
    assert kinds == {(release, kind) for release in RELEASES.split(",") for kind in (*MISTAKES, "none")}


@pytest.mark.skipif(not (WORK / "unpacked").is_dir(), reason="the wheels are not here: make oracle")
def test_new_commands_are_refused_where_the_wheels_refuse() -> None:
    from tests.oracle.mistakes import asked_of_the_wheels

    seed, count = (
        int(os.environ.get(f"SGL_TUNE_MISTAKES_{name}", usual))
        for name, usual in (("SEED", 1), ("COUNT", 60))
    )
    pairs = asked_of_the_wheels(random_cases(RELEASES.split(","), seed, count), WORK.absolute())
    assert [one for pair in pairs if not (one := judged(*pair)).agree] == []

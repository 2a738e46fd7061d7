"""Which ranks of a server are started for a plan, and what becomes of a start that is no answer."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from runtime.ghost.gpus import gpus
from runtime.record.events import record_of
from runtime.record.record import Record
from sgl_tune.asking.asking import Answers
from sgl_tune.asking.question import Question
from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.recorded.asked import records_of
from sgl_tune.servers.server import Server
from tests.record.test_record import ASKED, ENDED, READY
from tests.warm.recorded.test_planned import asked, call, named

DIED = {"event": "died", "phase": "weights", "type": "OutOfMemoryError", "text": "Tried", "stack": []}
REFUSED = {"event": "refused", "by": "arguments", "type": "SystemExit", "text": "no such flag", "stack": []}
SERVER = Server(Path("/p"), "3.11.1", (), Path("/s"), "0.5.17", "2.11", "0.7.2", 13, "--server")
QUESTION = Question(SERVER, ("--model-path", "m"), {}, gpus()["h200"])


class Kept:
    """Answers from records that are there."""

    def __init__(self, records: dict[int, Record]) -> None:
        self.records, self.started = records, list[int]()

    def answer(self, question: Question, say: Any) -> Record:
        self.started.append(question.rank)
        return self.records[question.rank]


def start(rank: int, *keys: str, **arguments: int) -> Record:
    events = [asked(**arguments), named(f"tp{rank}_pp0_dp0"), *(call(key) for key in keys)]
    return record_of(replace(ASKED, rank=rank), [*events, READY, ENDED])


def started(*records: Record) -> list[int]:
    kept = Kept({record.asked.rank: record for record in records})
    found = records_of(QUESTION, cast(Answers, kept), lambda event: None)
    assert sorted(kept.started) == [record.asked.rank for record in found]
    return [record.asked.rank for record in found]


def test_one_rank_is_started_once() -> None:
    assert started(start(0, "a", tp_size=1)) == [0]


def test_the_ends_of_a_stage_stand_for_its_ranks() -> None:
    assert started(*(start(rank, "a", tp_size=8) for rank in range(8))) == [0, 7]
    stages = [start(rank, "a", tp_size=4, pp_size=2) for rank in range(8)]
    assert started(*stages) == [0, 3, 4, 7]


def test_all_ranks_of_a_stage_are_started_where_its_ends_differ() -> None:
    assert started(*(start(rank, f"of rank {rank}", tp_size=4) for rank in range(4))) == [0, 1, 2, 3]
    odd = [start(rank, str(rank) if rank < 3 else "a", tp_size=3, pp_size=2) for rank in range(6)]
    assert started(*odd) == [0, 1, 2, 3, 5]


def test_a_refusal_is_the_servers_own() -> None:
    with pytest.raises(UsageError, match="SGLang refuses this command: no such flag"):
        started(record_of(ASKED, [REFUSED, ENDED]))


def test_a_start_that_dies_before_it_tunes_is_no_plan() -> None:
    lacks = "not known: .* lacks a package"
    for kind, said in (("OutOfMemoryError", "does not start"), ("ImportError", lacks)):
        with pytest.raises(CheckFailed, match=f"{said}: in weights: {kind}: Tried"):
            started(record_of(ASKED, [asked(), {**DIED, "type": kind}, ENDED]))


def test_a_start_that_dies_after_it_tuned_still_says_what_it_asks() -> None:
    events = [asked(), named("tp0_pp0_dp0"), call("a"), {**DIED, "phase": "decode graphs"}, ENDED]
    assert started(record_of(ASKED, events)) == [0]


@pytest.mark.parametrize(
    "sizes", [{"tp_size": 1 << 40}, {"pp_size": 1 << 40}, {"tp_size": 64, "pp_size": 64}]
)
def test_a_record_of_endless_ranks_starts_no_other(sizes: dict[str, int]) -> None:
    kept = Kept({0: start(0, "a", **sizes)})
    with pytest.raises(CheckFailed, match="a warm asks at most 1024"):
        records_of(QUESTION, cast(Answers, kept), lambda event: None)
    assert kept.started == [0]

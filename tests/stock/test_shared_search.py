"""Several processes tuning as one: one table, the work divided, and nobody left waiting."""

import hashlib
import time
from pathlib import Path
from typing import Any

import pytest
from flashinfer.autotuner import AutoTuner, autotune
from flashinfer.comm import PCIE_IPC_CUSTOM_OP

from runtime.autotune.cpu_clock import CpuSearchTuner
from runtime.autotune.errors import AutotuneError, TuningOutOfMemory, WorkersDisagree
from runtime.autotune.record import record_asked
from runtime.autotune.tuner import COLLECTIVE_OPS
from runtime.forward.comm import DistributedCommunicator
from runtime.server.parallel import ParallelConfig
from tests.runtime.ranks import Ranks
from tests.runtime.teams import team_of_world
from tests.runtime.tuned_layer import Layer, installed
from tests.stock.timed_op import TIMES, Timed, ask

ONE_FAILED, DIFFER = "screening tests::timed on worker 1 of 2: ", "workers 0 and 1 differ in "
MANY = {**TIMES, 4: 1.2, 5: 1.2, 6: 2.4}


def _tuner() -> CpuSearchTuner:
    return CpuSearchTuner(team_of_world())


def _tune_layer(comm: DistributedCommunicator, folder: Path) -> tuple[str, list[Any]]:
    path = folder / f"rank{comm.layout.rank}.json"
    with installed(_tuner()), autotune(True, cache=str(path)):
        Layer()()
        results = AutoTuner.get().results
    return hashlib.sha256(path.read_bytes()).hexdigest(), results


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_every_worker_writes_the_same_bytes(ranks: Ranks, workers: int, tmp_path: Path) -> None:
    answers = ranks.run(ParallelConfig(tp=workers), _tune_layer, tmp_path)
    assert len({digest for digest, _ in answers}) == 1
    assert all(results == answers[0][1] for _, results in answers)
    layer = Layer()
    assert {result.file_key for result in answers[0][1]} == layer.keys()
    for rank in range(workers):
        with installed(AutoTuner()), record_asked() as record:
            AutoTuner.get().load_configs(str(tmp_path / f"rank{rank}.json"))
            for rows in range(1, 18):
                layer(rows)
        assert record.hits == len(record.asked) == 34


def _tune_timed(comm: DistributedCommunicator) -> tuple[Any, dict[Any, int], Any]:
    runner = Timed(MANY)
    with installed(_tuner()), autotune(True):
        tactic = ask(runner)
        return tactic, dict(runner.launches), AutoTuner.get().results


def test_tactics_are_divided_and_the_best_wins(ranks: Ranks) -> None:
    answers = ranks.run(ParallelConfig(tp=4), _tune_timed)
    assert [tactic for tactic, _, _ in answers] == [1] * 4
    for _, launches, results in answers:
        # Three buckets, dealt out with a shift: nobody meets every tactic in each.
        assert len(launches) < len(MANY) and results == answers[0][2]
    assert {tactic for _, launches, _ in answers for tactic in launches} == set(MANY)


def _with_team_of_two(comm: DistributedCommunicator, what: str) -> tuple[str, str, float]:
    """What each of two workers is told when one of them fails or differs."""
    rank = comm.layout.rank
    odd = rank == 1
    runner, width, op = Timed(TIMES), 3, "tests::timed"
    if what == "out of memory" and odd:
        runner = Timed(TIMES, {tactic: lambda: RuntimeError("CUDA error: out of memory") for tactic in TIMES})
    elif what == "another width" and odd:
        width = 5
    elif what == "another op" and odd:
        op = "tests::other"
    elif what == "other tactics" and odd:
        runner = Timed(MANY)
    elif what == "a bug" and odd:
        runner.get_valid_tactics = lambda inputs, profile: 1 / 0  # type: ignore[method-assign,assignment]
    start = time.perf_counter()
    with installed(_tuner()):
        if what == "one has a table" and odd:
            AutoTuner.get()._file_configs["('tests::timed', 'Timed', ((2, 3),), ('timed',))"] = ("Timed", 1)
        try:
            with autotune(True):
                ask(runner, op=op, width=width)
        except AutotuneError as error:
            return type(error).__name__, str(error), time.perf_counter() - start
    return "nothing", "", time.perf_counter() - start


@pytest.mark.parametrize(
    ("what", "kind", "message"),
    [
        ("out of memory", TuningOutOfMemory, f"{ONE_FAILED}out of memory in tactic"),
        ("another width", WorkersDisagree, f"{DIFFER}the entries that tests::timed asks for"),
        ("another op", WorkersDisagree, f"{DIFFER}op (tests::timed and tests::other)"),
        ("other tactics", WorkersDisagree, f"{DIFFER}the tactics of tests::timed at bucket 1"),
        ("one has a table", WorkersDisagree, f"{DIFFER}the entries that tests::timed still lacks"),
        ("a bug", AutotuneError, f"{ONE_FAILED}division by zero"),
    ],
)
def test_all_are_told_what_one_ran_into(ranks: Ranks, what: str, kind: type, message: str) -> None:
    for name, text, seconds in ranks.run(ParallelConfig(tp=2), _with_team_of_two, what):
        assert name == kind.__name__ and message in text
        assert seconds < 30  # nobody waited for a minute, as a collective would


def _tune_with_failures(comm: DistributedCommunicator) -> Any:
    runner = Timed(TIMES, {1: lambda: ValueError("no such kernel")})
    with installed(_tuner()), autotune(True):
        tactic = ask(runner)
        tuner = AutoTuner.get()
        return tactic, tuner.stats.failed_tactics, [dict(result.failed) for result in tuner.results]


def test_a_failed_tactic_is_known_to_all(ranks: Ranks) -> None:
    answers = ranks.run(ParallelConfig(tp=2), _tune_with_failures)
    failed = {"tests::timed::Timed": {1}}
    # What failed in both neighbouring pilots is not tried between them.
    reason = {"1": "no such kernel"}
    assert answers == [(answers[0][0], failed, [reason, {}, reason])] * 2
    assert answers[0][0] != 1  # the fastest: which of the others is next, a busy machine may confuse


def test_the_collective_op_of_this_flashinfer_is_known() -> None:
    assert PCIE_IPC_CUSTOM_OP in COLLECTIVE_OPS


def _tune_collective(comm: DistributedCommunicator) -> dict[Any, int]:
    runner = Timed(TIMES)
    with installed(_tuner()), autotune(True):
        ask(runner, op=PCIE_IPC_CUSTOM_OP)
    return dict(runner.launches)


def test_collective_ops_are_never_divided(ranks: Ranks) -> None:
    for launches in ranks.run(ParallelConfig(tp=2), _tune_collective):
        assert set(launches) >= set(TIMES) - {-1}

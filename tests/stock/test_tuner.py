"""The search inside FlashInfer's own AutoTuner: its keys, files and modes, another loop."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from flashinfer import autotune_v2
from flashinfer.autotuner import AutoTuner, autotune

from runtime.autotune.bench import Bench
from runtime.autotune.candidate import Ask, Candidate
from runtime.autotune.cpu_clock import CpuClock, CpuSearchTuner
from runtime.autotune.errors import TuningOutOfMemory
from tests.runtime.tuned_layer import BUCKETS, Layer, installed
from tests.stock.timed_op import CONFIG, OP, TIMES, TOKENS, Timed, ask, key


@pytest.fixture(autouse=True)
def _own_tuner() -> Iterator[None]:
    with installed(CpuSearchTuner()):
        yield


def _stock_tactic(runner: Timed, **context: Any) -> Any:
    with installed(CpuClock()), autotune(True, **context):
        return ask(runner)


def _entries(path: Path) -> dict[str, Any]:
    return {name: value for name, value in json.loads(path.read_text()).items() if name[0] != "_"}


def test_the_winner_is_the_fastest_and_the_slow_ones_cost_little() -> None:
    runner, stock = Timed(TIMES), Timed(TIMES)
    with autotune(True):
        assert ask(runner) == 1
    assert _stock_tactic(stock) == 1
    assert runner.launches[0] < stock.launches[0] / 3
    assert {result.tactic for result in AutoTuner.get().results} == {1}
    assert all(result.default_ms > 4 * result.best_ms for result in AutoTuner.get().results)


def test_files_are_stock_s_but_for_the_winners(tmp_path: Path) -> None:
    """Both loops write the same keys, runners and policies; a stock process finds all of ours."""
    layer, ours, stock = Layer(), tmp_path / "ours.json", tmp_path / "stock.json"
    with autotune(True, cache=str(ours)):
        layer()
    with installed(CpuClock()), autotune(True, cache=str(stock)):
        layer()
    shapes = [{k: (v[0], v[2]) for k, v in _entries(path).items()} for path in (ours, stock)]
    assert shapes[0] == shapes[1] and len(shapes[0]) == 2 * len(BUCKETS)
    with installed(AutoTuner()), autotune(True, cache=str(ours)):
        layer()  # a stock tuner has no clock here: it can only look up
        assert AutoTuner.get().profiling_cache == {}


def test_compound_tactics_come_back_as_a_file_would_give_them(tmp_path: Path) -> None:
    runner = Timed({-1: 0.6, (8, 1): 0.15, (8, 2): 0.6})
    with autotune(True, cache=str(tmp_path / "f.json")):
        assert ask(runner) == (8, 1)
    assert _entries(tmp_path / "f.json")[key(1)][1] == [8, 1]


def test_a_failing_tactic_only_loses_and_is_named() -> None:
    def broken() -> Exception:
        return RuntimeError("invalid configuration argument\nat line 7")

    with autotune(True):
        assert ask(Timed(TIMES, {1: broken, 2: broken})) == 3
    tuner = AutoTuner.get()
    assert tuner.stats.failed_tactics == {f"{OP}::Timed": {1, 2}}
    assert tuner.results[0].failed == {str(n): "invalid configuration argument" for n in (1, 2)}


def test_where_every_tactic_fails_there_is_no_entry() -> None:
    runner = Timed(TIMES, {tactic: lambda: ValueError("unsupported") for tactic in TIMES})
    with autotune(True):
        assert ask(runner) == -1
    tuner = AutoTuner.get()
    assert tuner.profiling_cache == {} and [result.tactic for result in tuner.results] == [None] * 3
    assert len(tuner.results[0].failed) == len(TIMES)


OUT_OF_MEMORY = [
    lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB."),
    lambda: RuntimeError("CUDA error: out of memory"),
    lambda: RuntimeError("Error in function 'alloc': cudaErrorMemoryAllocation"),
    lambda: MemoryError(),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_running_out_of_memory_is_not_a_failed_tactic(error: Any) -> None:
    """The stock tuner uses the fallback tactic, or marks the tactic as failed, and says nothing."""
    runner = Timed(TIMES, {2: error})
    said = r"tactic 2 of tests::timed at bucket 1.*fewer rows"
    with pytest.raises(TuningOutOfMemory, match=said), autotune(True):
        ask(runner)
    assert not AutoTuner.get().is_tuning_mode and AutoTuner.get().stats.failed_tactics == {}
    assert _stock_tactic(Timed(TIMES, {2: error})) in (-1, 1)


def test_running_out_of_memory_while_making_inputs_is_named() -> None:
    def too_much(shape: Any, dtype: Any, device: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB.")

    from dataclasses import replace

    config = replace(CONFIG, tensor_initializers=((0, too_much),))
    with pytest.raises(TuningOutOfMemory, match="synthetic inputs of tests::timed"), autotune(True):
        AutoTuner.get().choose_one(OP, [Timed(TIMES)], config, [torch.ones(1, 3)])


def test_all_contexts_of_flashinfer_apply() -> None:
    runner = Timed(TIMES)
    with autotune(True, tuning_buckets=(7, 9), round_up=True, skip_ops={"tests::other"}):
        ask(runner)
        assert ask(Timed(TIMES), op="tests::other") == -1
    with autotune_v2(mode="tune", persistent_cache=False):
        ask(runner, width=5)
    keys = {cached.file_key for cached in AutoTuner.get().profiling_cache}
    assert keys == {key(7), key(9), *(key(tokens, width=5) for tokens in TOKENS)}


def test_outside_tuning_it_is_stock() -> None:
    runner = Timed(TIMES)
    assert ask(runner) == -1 and not runner.launches
    with autotune(True):
        ask(runner)
    launched = runner.launches.total()
    assert [ask(runner, rows) for rows in (1, 3, 100)] == [1, 1, 1]
    assert runner.launches.total() == launched


def test_an_op_inside_a_measured_op_is_looked_up_and_not_tuned() -> None:
    inner = Timed(TIMES)
    outer = Timed({-1: 0.6, 0: 0.15}, inner=lambda: ask(inner, op="tests::inner"))
    with autotune(True):
        assert ask(outer) == 0
    assert not inner.launches
    with autotune(True):
        assert ask(inner, op="tests::inner") == 1


class LaunchesWhenPrepared(Timed):
    """As FlashInfer's CUTLASS MoE."""

    fused_moe_runner = None

    def forward(self, inputs: list[Any], tactic: Any = -1, do_preparation: bool = False, **_: Any) -> None:
        super().forward(inputs, tactic)


def _prepared(runner: Timed, tactics: list[Any]) -> None:
    profile = AutoTuner.get()._generate_optimization_profiles(CONFIG, [torch.ones(1, 3)])[0]
    bench = Bench(AutoTuner.get(), Ask(OP, [runner], CONFIG, [torch.ones(1, 3)], {}), profile)
    bench.prepare([Candidate(0, tactic) for tactic in tactics])


def test_a_preparation_that_launches_a_tactic_is_given_a_likely_one() -> None:
    runner, plain = LaunchesWhenPrepared(TIMES), Timed(TIMES)
    _prepared(runner, [1, 0, -1])
    assert runner.launches == {1: 1}
    _prepared(plain, [1, 0, -1])
    assert plain.prepared == 1 and not plain.launches

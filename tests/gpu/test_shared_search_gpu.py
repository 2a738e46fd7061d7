"""The shared search on a GPU: FlashInfer's own keys, winners at its noise floor, a fraction of the time."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
import torch
from flashinfer.autotuner import AutoTuner, autotune

from runtime.autotune.layer import Graphs, LayerBatch, LayerTrial
from runtime.autotune.record import record_asked
from runtime.autotune.timed_tuner import LaunchQueue
from runtime.autotune.tuner import SearchTuner
from tests.runtime.tuned_layer import installed

if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
    pytest.skip("needs a Hopper GPU", allow_module_level=True)

from benchmarks.tuning_search import FirstLaunches, KernelJudge, Layer, Shape, winners

SMALL = Shape(hidden=2048, intermediate=768, experts=32, top_k=4, ep=1, tokens=256, tune_max=256)


@pytest.fixture(scope="module")
def layer() -> Iterator[Layer]:
    with installed(AutoTuner()):
        layer = Layer(SMALL)
        layer.forward()
        yield layer


def _tune(layer: Layer, tuner: AutoTuner, path: Path) -> float:
    with installed(tuner):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with autotune(True, cache=str(path)):
            layer.forward()
        torch.cuda.synchronize()
        return time.perf_counter() - start


def test_stock_s_keys_and_winners_in_less_time(layer: Layer, tmp_path: Path) -> None:
    stock, ours = AutoTuner(), SearchTuner()
    stock_seconds = _tune(layer, stock, tmp_path / "stock.json")
    our_seconds = _tune(layer, ours, tmp_path / "ours.json")
    assert winners(ours).keys() == winners(stock).keys() and len(winners(ours)) == 18
    assert our_seconds < stock_seconds / 4
    judge = KernelJudge([winners(stock), winners(ours)])
    with installed(judge), autotune(True):
        layer.forward()
    assert mean(ours / stock - 1 for stock, ours in judge.times.values()) < 0.05
    assert not [result for result in ours.results if result.tactic is None]
    with installed(AutoTuner()), record_asked() as record, autotune(True, cache=str(tmp_path / "ours.json")):
        layer.forward()
        assert not AutoTuner.get().profiling_cache
    assert record.hits == len(record.asked) == 18


def test_the_layer_s_graph_takes_the_routing_of_the_day(layer: Layer) -> None:
    """A graph is captured once and replayed on every routing; its result must change with the routing."""
    taker = FirstLaunches()
    with installed(taker), autotune(True):
        layer.forward(4)
    batch = taker.trial.batch(4, 1)
    batch.route(0)
    batch.forward([0, 60])
    graphs = Graphs()
    replay = graphs.captured(lambda: batch.forward([0, 60]))
    other = graphs.captured(lambda: batch.forward([1, 61]))
    outputs = []
    for routing in (0, 3, 0):
        batch.route(routing)
        other()
        replay()
        outputs.append(batch._arguments["output"].clone())
    assert torch.equal(outputs[0], outputs[2]) and not torch.equal(outputs[0], outputs[1])


def test_a_slow_host_is_not_measured(layer: Layer) -> None:
    """Each launch takes longer than its kernel, so the device would wait between two kernels."""
    x = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)

    def slowly() -> object:
        time.sleep(0.0003)
        return x @ x

    queue = LaunchQueue(launch_us=35)
    quick = min(min(queue.times([lambda: x @ x] * 4, 8, 0.0)) for _ in range(3))
    slow = queue.times([slowly] * 4, 8, quick)
    assert max(slow) < 2 * quick < 0.1


def test_a_layer_that_cannot_run_leaves_the_decision_to_its_kernels(layer: Layer) -> None:
    class Broken(SearchTuner):
        @contextmanager
        def of_layer(self, trial: LayerTrial) -> Iterator[None]:
            def no_batch(rows: int, seed: int) -> LayerBatch:
                batch = trial.batch(rows, seed)
                batch.forward = lambda tactics: 1 / 0  # type: ignore[method-assign,assignment]
                return batch

            with super().of_layer(LayerTrial(trial.ops, no_batch)):
                yield

    with installed(Broken()) as _, autotune(True):
        layer.forward()
        assert len(winners(AutoTuner.get())) == 18


def test_an_out_of_memory_ends_the_search() -> None:
    """Runs in a process of its own: FlashInfer's runner keeps the largest profiling buffer of all tests."""
    code = "from tests.gpu.test_shared_search_gpu import run_out_of_memory; run_out_of_memory()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "TuningOutOfMemory: screening trtllm::fused_moe::gemm1: out of memory" in done.stderr


def run_out_of_memory() -> None:
    """The buffer that profiling needs does not fit: stock would go on with the fallback tactic."""
    layer = Layer(replace(SMALL, tune_max=8192))
    with installed(SearchTuner()), _memory_left(64 << 20), autotune(True):
        layer.forward(16)


@contextmanager
def _memory_left(room: int) -> Iterator[None]:
    """torch's own limit: a GPU that is really full would not even load a kernel."""
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + room) / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)

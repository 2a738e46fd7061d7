"""FlashInfer's AutoTuner on a machine without CUDA, with its search or ours, and a CPU's clock."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

import torch
from flashinfer.autotuner import AutoTuner, TunableRunner, TuningConfig

from runtime.autotune.installed import measurement_scope
from runtime.autotune.search import SearchPolicy
from runtime.autotune.tuner import SearchTuner

# There is no queue and no rotation of routings, but the machine is busy: take the best of a few runs.
CPU_POLICY = SearchPolicy(sweep=(2, 4), stages=(2, 4), uneven=inf, samples=0, rounds=2, turn_ms=0.0)


class CpuClock(AutoTuner):
    """FlashInfer's own tuner with another clock."""

    def choose_one(self, *args: Any, **kwargs: Any) -> tuple[TunableRunner, Any]:
        with _no_graph_capture():
            return super().choose_one(*args, **kwargs)

    def _profile_single_kernel(
        self,
        runner: TunableRunner,
        inputs: list[torch.Tensor],
        tactic: Any,
        tuning_config: TuningConfig,
        input_tensor_batches: list[list[Any]] | None = None,
        **kwargs: Any,
    ) -> float:
        batches = input_tensor_batches or [inputs]
        repeat = getattr(tuning_config, "profiling_repeat", None) or self.repeat
        samples = []
        with measurement_scope():
            for run in range(-self.warmup, repeat):
                start = time.perf_counter()
                runner(batches[run % len(batches)], tactic=tactic, **kwargs)
                samples.append(time.perf_counter() - start)
        # The best run, because other processes only add time.
        return min(samples[self.warmup :]) * 1e3


class CpuSearchTuner(CpuClock, SearchTuner):
    """The shared search, timed by the CPU's clock."""

    queues = False
    default_policy = CPU_POLICY


@contextmanager
def _no_graph_capture() -> Iterator[None]:
    """Answer no when FlashInfer asks if a CUDA graph is being captured: torch without CUDA cannot."""
    if torch.cuda.is_available():
        yield
        return
    asked = torch.cuda.is_current_stream_capturing
    torch.cuda.is_current_stream_capturing = lambda: False
    try:
        yield
    finally:
        torch.cuda.is_current_stream_capturing = asked

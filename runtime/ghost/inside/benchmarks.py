"""torch.compile times a kernel that is not in its cache, beside a buffer as large as the GPU's own cache.

A start finds none of its kernels there, or all of them where GHOST_COMPILED is "warm". Where such a buffer
makes the peak of a phase, the record depends on that and says so.
"""

from __future__ import annotations

import os
from typing import Any

from runtime.ghost.inside import honesty
from runtime.ghost.inside.hooks import after

WHY = "this phase's peak is a benchmark's; a server that has the kernel in torch.compile's cache runs none"
MILLISECONDS = 1.0
_peak = (0, 0)  # the peak that a benchmark made, and the one before it


@after("torch._inductor.runtime.benchmarking")
def _benchmarks(module: Any) -> None:
    for name in ("InductorBenchmarker", "TritonBenchmarker"):
        if hasattr(module, name):
            _watch(getattr(module, name))


def _watch(kind: Any) -> None:
    import torch

    inner = kind.benchmark_gpu

    def benchmark_gpu(self: Any, timed: Any, *args: Any, **kwargs: Any) -> Any:
        global _peak
        if os.environ.get("GHOST_COMPILED") == "warm":
            return MILLISECONDS
        before = torch.cuda.max_memory_allocated()
        took = inner(self, timed, *args, **kwargs)
        now = torch.cuda.max_memory_allocated()
        if now > before:
            first = _peak[1] if _peak[0] == before else before
            _peak = now, first
        return took

    kind.benchmark_gpu = benchmark_gpu


@after("torch.cuda.memory")
def _memory(module: Any) -> None:
    inner = module.reset_peak_memory_stats

    def reset_peak_memory_stats(*args: Any, **kwargs: Any) -> Any:
        peak, before = _peak
        if peak and module.max_memory_allocated() == peak:
            honesty.inexact("guess", "benchmark of torch.compile", WHY, peak - before)
        return inner(*args, **kwargs)

    module.reset_peak_memory_stats = reset_peak_memory_stats

"""Many kernels timed with one synchronisation: they queue up on the device, an event between two of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch

from runtime.autotune.installed import delay_device

# The driver's queue holds about a thousand entries and a launch may be three; behind a full one hosts wait.
MOST_QUEUED = 256
_TRIES = 3
_MOST_AHEAD_US = 20_000


def queued_times(kernels: Sequence[Callable[[], object]], launches: int, ahead_us: int) -> list[float]:
    """Milliseconds a launch of each, launched that often in a row.

    Where the device had to wait for the host, its waits were measured: again, with as long a lead as the host
    took. First calls in a process are slow, and so is a busy machine.
    """
    for _ in range(_TRIES):
        start = time.perf_counter()
        events, kept_up = _queued(kernels, launches, ahead_us)
        host_us = round(1e6 * (time.perf_counter() - start))
        events[-1].synchronize()
        if kept_up or host_us > _MOST_AHEAD_US:
            break
        ahead_us = max(2 * ahead_us, host_us)
    return [before.elapsed_time(after) / launches for before, after in pairwise(events)]


def _queued(
    kernels: Sequence[Callable[[], object]], launches: int, ahead_us: int
) -> tuple[list[torch.cuda.Event], bool]:
    """And whether each kernel's launches were all there before the device came to the first."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(len(kernels) + 1)]
    kept_up = True
    if ahead_us:
        delay_device(ahead_us)
    events[0].record()
    for kernel, (before, after) in zip(kernels, pairwise(events), strict=True):
        for _ in range(launches):
            kernel()
        kept_up = kept_up and not before.query()
        after.record()
    return events, kept_up

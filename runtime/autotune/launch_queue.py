"""Many kernels timed with one synchronisation: they queue up on the device, an event between two of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch

from runtime.autotune.installed import delay_device

# The driver's queue holds about a thousand entries and a launch may be three; behind a full one hosts wait.
MOST_QUEUED = 256


def queued_times(kernels: Sequence[Callable[[], object]], launches: int, ahead_us: int) -> list[float]:
    """Milliseconds a launch of each, launched that often in a row."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(len(kernels) + 1)]
    if ahead_us:
        delay_device(ahead_us)
    events[0].record()
    for kernel, event in zip(kernels, events[1:], strict=True):
        for _ in range(launches):
            kernel()
        event.record()
    events[-1].synchronize()
    return [before.elapsed_time(after) / launches for before, after in pairwise(events)]

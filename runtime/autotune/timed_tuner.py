"""A version of FlashInfer's AutoTuner whose clock we set, and what a search must know about that clock."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import torch
from flashinfer.autotuner import AutoTuner

from runtime.autotune.candidate import Candidate
from runtime.autotune.installed import delay_device
from runtime.autotune.progress import Watch, unwatched
from runtime.autotune.search import SearchPolicy
from runtime.autotune.team import Team

# The driver's queue holds about a thousand entries, up to three per launch. If it is full, the host waits.
MOST_QUEUED = 256
_TRIES = 3
_MOST_AHEAD_US = 20_000
_SPARE = 1.3
_LEAD_US = 30
# The host's time to queue one launch and its event.
_LAUNCH_US = 35
_START_US = 100


@dataclass(frozen=True, slots=True)
class Effort:
    """One measurement by FlashInfer's own clock: untimed launches, timed launches, and how long the device
    waits while they queue up."""

    warmup: int
    repeat: int
    delay_us: int


class TimedTuner(AutoTuner):
    queues = True  # a device that works behind the host's back
    default_policy = SearchPolicy()

    def __init__(
        self, team: Team | None = None, policy: SearchPolicy | None = None, watch: Watch = unwatched
    ) -> None:
        super().__init__()
        self.team, self.policy, self.watch = team or Team(), policy or self.default_policy, watch
        self.queue = LaunchQueue(_LAUNCH_US)
        self.is_warm = False  # the device's clock: idle devices are slow
        self.launched: set[tuple[str, Candidate]] = set()
        self._measuring = False

    def delay_us(self, launches: int, kernel_ms: float) -> int:
        """Return the wait in which launches queue up. Without it, short kernels would measure the host."""
        return _START_US + round(launches * max(0.0, _LAUNCH_US - kernel_ms * 1e3))

    @contextmanager
    def measuring(self, effort: Effort = Effort(0, 1, 0)) -> Iterator[None]:
        """Set how long FlashInfer's own clock measures."""
        saved = self.warmup, self.repeat, self.stream_delay_micro_secs, self._measuring
        self.warmup, self.repeat, self.stream_delay_micro_secs = effort.warmup, effort.repeat, effort.delay_us
        self._measuring = True
        try:
            yield
        finally:
            self.warmup, self.repeat, self.stream_delay_micro_secs, self._measuring = saved


class LaunchQueue:
    """Times kernels that may be shorter than their launches: the device starts late enough for the host to be
    ahead, by as much time as the host needed before."""

    def __init__(self, launch_us: float) -> None:
        self._launch_us = launch_us

    def times(self, kernels: Sequence[Callable[[], object]], launches: int, kernel_ms: float) -> list[float]:
        """Return each kernel's milliseconds per launch, in `launches` in a row. `kernel_ms` is a guess.

        If the device waited for the host, the waits were measured too. Then it is repeated with the time that
        the host took as a lead. The first calls in a process are slow, and so is a busy machine.
        """
        ahead_us = self._lead_us(len(kernels), launches, kernel_ms)
        for _ in range(_TRIES):
            start = time.perf_counter()
            events, kept_up = _queued(kernels, launches, ahead_us)
            host_us = round(1e6 * (time.perf_counter() - start))
            events[-1].synchronize()
            self._learn(host_us / (len(kernels) * launches))
            if kept_up or host_us > _MOST_AHEAD_US:
                break
            ahead_us = max(2 * ahead_us, host_us)
        return [before.elapsed_time(after) / launches for before, after in pairwise(events)]

    def _lead_us(self, kernels: int, launches: int, kernel_ms: float) -> int:
        """Return the lead with which a kernel's launches are all queued before its first one runs."""
        launch_us = _SPARE * self._launch_us
        behind = (kernels - 1) * max(0.0, launch_us - kernel_ms * 1e3)
        return _LEAD_US + round(launches * (launch_us + behind))

    def _learn(self, launch_us: float) -> None:
        """Rise at once with a slow launch, and fall slowly."""
        self._launch_us = max(launch_us, 0.8 * self._launch_us + 0.2 * launch_us)


def _queued(
    kernels: Sequence[Callable[[], object]], launches: int, ahead_us: int
) -> tuple[list[torch.cuda.Event], bool]:
    """Return the events, and whether all launches of each kernel were queued before its first one ran."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(len(kernels) + 1)]
    kept_up = True
    delay_device(ahead_us)
    events[0].record()
    for kernel, (before, after) in zip(kernels, pairwise(events), strict=True):
        for _ in range(launches):
            kernel()
        kept_up = kept_up and not before.query()
        after.record()
    return events, kept_up

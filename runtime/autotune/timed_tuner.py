"""FlashInfer's AutoTuner with its clock in our hands, and what a search with it needs to know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flashinfer.autotuner import AutoTuner

from runtime.autotune.candidate import Candidate
from runtime.autotune.effort import Effort
from runtime.autotune.launch_queue import LaunchQueue
from runtime.autotune.progress import Watch, unwatched
from runtime.autotune.search import SearchPolicy
from runtime.autotune.team import Team

# What the host needs to queue one launch and its event.
_LAUNCH_US = 35
_START_US = 100


class TimedTuner(AutoTuner):
    queues = True  # a device that works behind the host's back

    def __init__(
        self, team: Team | None = None, policy: SearchPolicy | None = None, watch: Watch = unwatched
    ) -> None:
        super().__init__()
        self.team, self.policy, self.watch = team or Team(), policy or SearchPolicy(), watch
        self.queue = LaunchQueue(_LAUNCH_US)
        self.is_warm = False  # the device's clock: idle devices are slow
        self.launched: set[tuple[str, Candidate]] = set()
        self._measuring = False

    def delay_us(self, launches: int, kernel_ms: float) -> int:
        """Kernels shorter than their launches must queue up first, or the host would be measured."""
        return _START_US + round(launches * max(0.0, _LAUNCH_US - kernel_ms * 1e3))

    @contextmanager
    def measuring(self, effort: Effort = Effort(0, 1, 0)) -> Iterator[None]:
        """How long FlashInfer's own clock measures."""
        saved = self.warmup, self.repeat, self.stream_delay_micro_secs, self._measuring
        self.warmup, self.repeat, self.stream_delay_micro_secs = effort.warmup, effort.repeat, effort.delay_us
        self._measuring = True
        try:
            yield
        finally:
            self.warmup, self.repeat, self.stream_delay_micro_secs, self._measuring = saved

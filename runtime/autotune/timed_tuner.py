"""FlashInfer's AutoTuner with its clock in our hands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flashinfer.autotuner import AutoTuner

from runtime.autotune.candidate import Candidate
from runtime.autotune.search import Effort


class TimedTuner(AutoTuner):
    def __init__(self) -> None:
        super().__init__()
        self.launched: set[tuple[str, Candidate]] = set()
        self._measuring = False

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

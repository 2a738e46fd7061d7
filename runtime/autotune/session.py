"""FlashInfer's autotuner as SGLang runs it: it tunes the calls of a dummy forward.

FlashInfer's context is entered once. `runtime.start.model_runner` runs the dummy forward, on its own stream
and without logits.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from flashinfer.autotuner import AutoTuner

from runtime.autotune.cpu_clock import CpuSearchTuner
from runtime.autotune.errors import AutotuneError
from runtime.autotune.installed import tuning_mode
from runtime.autotune.progress import BucketResult
from runtime.autotune.team import Team
from runtime.autotune.tuner import SearchTuner
from runtime.server.config import RuntimeConfig


@dataclass(frozen=True, slots=True)
class Tuned:
    """One tuned dummy forward. `buckets` were measured; entries that the file already had are reused."""

    what: str
    calls: int
    buckets: tuple[BucketResult, ...]
    seconds: float

    @property
    def failed(self) -> tuple[BucketResult, ...]:
        """The buckets without any tactic that works: a server would try them again at every start."""
        return tuple(bucket for bucket in self.buckets if bucket.tactic is None)


class AutotuneSession:
    """A session. Its tuner stays for the rest of the process, because serving looks up what tuning found."""

    def __init__(self, device: torch.device, config: RuntimeConfig, skip_ops: Collection[str] = ()) -> None:
        self.config, self.skip_ops = config, frozenset(skip_ops)
        self.tuner = install_tuner(device)
        self.tuned: list[Tuned] = []

    def run(self, forward: Callable[[], object], what: str) -> None:
        tuner, start = self.tuner, time.perf_counter()
        known, calls = len(tuner.results), tuner.calls
        with torch.inference_mode(), tuning_mode(self.skip_ops, races_default=True):
            forward()
        calls = tuner.calls - calls
        if not calls:
            raise AutotuneError(
                f"the {what} forward asked FlashInfer for nothing: --moe-runner-backend "
                f"{self.config.kernels.moe} reached no tuned kernel in this model"
            )
        self.tuned.append(Tuned(what, calls, tuple(tuner.results[known:]), time.perf_counter() - start))


def install_tuner(device: torch.device, team: Team | None = None) -> SearchTuner:
    """Return the process's tuner. The first stays, so that a draft's session keeps the target's entries."""
    installed = AutoTuner._instance
    if isinstance(installed, SearchTuner):
        return installed
    kind = SearchTuner if device.type == "cuda" else CpuSearchTuner
    AutoTuner._instance = kind(team)
    return AutoTuner._instance

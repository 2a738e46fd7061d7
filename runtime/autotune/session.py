"""FlashInfer's autotuner as SGLang holds it: load, tune what a dummy forward asks for, save.

`autotune(cache=...)` would drop a target's entries when its draft is tuned, so files are loaded and saved by
hand, and FlashInfer's context is entered once. The dummy forward, its stream and its missing logits are
`runtime.start.model_runner`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import torch
from flashinfer.autotuner import AutoTuner

from runtime.autotune.cpu_clock import CpuSearchTuner
from runtime.autotune.errors import AutotuneError, first_line
from runtime.autotune.installed import tuning_mode
from runtime.autotune.progress import BucketResult, Watch, unwatched
from runtime.autotune.search import SearchPolicy
from runtime.autotune.team import Team
from runtime.autotune.tuner import SearchTuner
from runtime.server.config import RuntimeConfig


@dataclass(frozen=True, slots=True)
class Tuned:
    """One dummy forward. `buckets` are those that were measured; what the file already had was reused."""

    what: str
    calls: int
    buckets: tuple[BucketResult, ...]
    seconds: float

    @property
    def failed(self) -> tuple[BucketResult, ...]:
        """Without any tactic that works: a server would try again at every start."""
        return tuple(bucket for bucket in self.buckets if bucket.tactic is None)


class AutotuneSession:
    """Its tuner stays for the rest of the process, because serving looks up what tuning found."""

    def __init__(
        self,
        device: torch.device,
        config: RuntimeConfig,
        *,
        cache: Path | None = None,
        skip_ops: Collection[str] = (),
        team: Team | None = None,
        watch: Watch = unwatched,
        policy: SearchPolicy | None = None,
    ) -> None:
        self.config, self.cache, self.skip_ops = config, cache, frozenset(skip_ops)
        self.tuner = install_tuner(device, team, watch, policy)
        self.tuned: list[Tuned] = []

    def run(self, forward: Callable[[], object], what: str) -> None:
        tuner, start = self.tuner, time.perf_counter()
        known, calls = len(tuner.results), tuner.calls
        if self.cache is not None:
            _load(tuner, self.cache)
        races_default = self.config.release.candidate_selection is not None
        with torch.inference_mode(), tuning_mode(self.skip_ops, races_default):
            forward()
        if self.cache is not None:
            _save(tuner, self.cache)
        calls = tuner.calls - calls
        if not calls:
            raise AutotuneError(
                f"the {what} forward asked FlashInfer for nothing: --moe-runner-backend "
                f"{self.config.moe_runner_backend} reached no tuned kernel in this model"
            )
        self.tuned.append(Tuned(what, calls, tuple(tuner.results[known:]), time.perf_counter() - start))


def install_tuner(
    device: torch.device,
    team: Team | None = None,
    watch: Watch = unwatched,
    policy: SearchPolicy | None = None,
) -> SearchTuner:
    """The first one stays: a draft's session must not lose the target's table."""
    installed = AutoTuner._instance
    if isinstance(installed, SearchTuner):
        return installed
    kind = SearchTuner if device.type == "cuda" else CpuSearchTuner
    AutoTuner._instance = kind(team, policy, watch)
    return AutoTuner._instance


def _load(tuner: SearchTuner, cache: Path) -> None:
    if not cache.is_file():
        return
    try:
        tuner.load_configs(str(cache))
    except Exception as error:  # FlashInfer's loader fails in many ways on a malformed file
        raise AutotuneError(
            f"{cache}: FlashInfer cannot load it ({type(error).__name__}: {first_line(error)}); "
            "a server would die of it: delete it"
        ) from error


def _save(tuner: SearchTuner, cache: Path) -> None:
    try:
        tuner.save_configs(str(cache))
    except OSError as error:
        raise AutotuneError(f"{cache}: cannot be written ({error.strerror or error})") from error

"""What SGLang does around its dummy forward: load, tune on a side stream without logits, save.

`autotune(cache=...)` would drop a target's entries when its draft is tuned, so files are loaded and saved by
hand, and FlashInfer's context is entered once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from flashinfer import autotune_v2
from flashinfer.autotuner import AutoTuner, autotune

from runtime.autotune.cpu_clock import CpuSearchTuner
from runtime.autotune.errors import AutotuneError, first_line
from runtime.autotune.progress import BucketResult, Watch, unwatched
from runtime.autotune.search import SearchPolicy
from runtime.autotune.team import Team
from runtime.autotune.tuner import SearchTuner
from runtime.config import RuntimeConfig
from runtime.device import Device
from runtime.logits_processor import autotune_dummy_run_mode
from runtime.sizing import release

# The release whose key says `candidate_selection=v2_default`.
_DEFAULT_RACES_SINCE = (0, 5, 23)


@dataclass(frozen=True, slots=True)
class Tuned:
    """One session. `buckets` are those it measured; what the file already had was reused."""

    buckets: tuple[BucketResult, ...]
    calls: int
    seconds: float

    @property
    def failed(self) -> tuple[BucketResult, ...]:
        """Without any tactic that works: a server would try again at every start."""
        return tuple(bucket for bucket in self.buckets if bucket.tactic is None)


def install_tuner(
    device: torch.device,
    team: Team | None = None,
    watch: Watch = unwatched,
    policy: SearchPolicy | None = None,
) -> SearchTuner:
    """For the rest of the process, because serving looks up what tuning found. The first one stays."""
    installed = AutoTuner._instance
    if isinstance(installed, SearchTuner):
        return installed
    kind = SearchTuner if device.type == "cuda" else CpuSearchTuner
    AutoTuner._instance = kind(team, policy, watch)
    return AutoTuner._instance


def run_autotune(
    forwards: Sequence[Callable[[], object]],
    device: Device,
    config: RuntimeConfig,
    *,
    cache: Path | None = None,
    skip_ops: Collection[str] = (),
    run_lm_head: bool = False,
    tuner: SearchTuner | None = None,
) -> Tuned:
    """Run dummy forwards and tune what they ask for. On meta nothing is tuned: they are counted."""
    if device.torch_device.type == "meta":
        with autotune_dummy_run_mode(run_lm_head), device.side_stream():
            _run_all(forwards)
        return Tuned((), 0, 0.0)
    tuner = tuner or install_tuner(device.torch_device)
    known, calls, start = len(tuner.results), tuner.calls, time.perf_counter()
    if cache is not None:
        _load(tuner, cache)
    with (
        device.side_stream(),
        torch.inference_mode(),
        _tuning_mode(config, skip_ops),
        autotune_dummy_run_mode(run_lm_head),
    ):
        _run_all(forwards)
        device.synchronize()
    if cache is not None:
        _save(tuner, cache)
    calls = tuner.calls - calls
    if not calls:
        raise AutotuneError(
            f"the dummy forward asked FlashInfer for nothing: --moe-runner-backend "
            f"{config.moe_runner_backend} has no tuned kernel in this model"
        )
    return Tuned(tuple(tuner.results[known:]), calls, time.perf_counter() - start)


def _run_all(forwards: Sequence[Callable[[], object]]) -> None:
    for forward in forwards:
        forward()


@contextmanager
def _tuning_mode(config: RuntimeConfig, skip_ops: Collection[str]) -> Iterator[None]:
    if release(config.sglang_version) < _DEFAULT_RACES_SINCE:
        with autotune(True, skip_ops=set(skip_ops)):
            yield
    else:
        with autotune_v2(mode="tune", persistent_cache=False, skip_ops=set(skip_ops)):
            yield


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

"""Differences between versions of FlashInfer's AutoTuner, as far as the installed version shows them."""

import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from math import inf
from typing import Any

import flashinfer
import torch
from flashinfer.autotuner import (
    AutoTuner,
    DynamicTensorSpec,
    OptimizationProfile,
    TunableRunner,
    TuningConfig,
    _json_to_tactic,
    _tactic_to_json,
    autotune,
)

from runtime.autotune.errors import AutotuneError
from runtime.autotune.progress import BucketResult
from runtime.flashinfer.inside.lookups import effective_config as effective_config
from runtime.flashinfer.versions import FLASHINFERS, flashinfer_of

VERSION: str = flashinfer.__version__
WAYS = flashinfer_of(VERSION)
_MODULE = sys.modules[AutoTuner.__module__]  # a package of its own since 0.6.15
_CONFIG = {field.name for field in fields(TuningConfig)}
_ASKS_FOR_POLICY = "require_profiling_policy" in inspect.signature(AutoTuner.search_cache).parameters
_TAKES_BATCHES = "input_tensor_batches" in inspect.signature(AutoTuner._profile_single_kernel).parameters
_NEEDED = (
    "search_cache",
    "_get_cache_key",
    "_generate_optimization_profiles",
    "_prepare_input_tensors",
    "_prepare_input_tensors_with_batches",
    "_profile_single_kernel",
)

_CYCLES_A_MICROSECOND = 2000

Shapes = tuple[tuple[int, ...], ...]
Initializer = Callable[..., Any]

# Since 0.6.12 kernels may ask whether they are being timed.
measurement_scope: Callable[[], Any] = getattr(_MODULE, "_profile_measurement_scope", nullcontext)


def delay_device(microseconds: int) -> None:
    """Make the device wait about that long, so that later launches queue up.

    FlashInfer's own kernel for this would have to be compiled first.
    """
    torch.cuda._sleep(microseconds * _CYCLES_A_MICROSECOND)


def check_tuner() -> None:
    absent = [name for name in _NEEDED if not hasattr(AutoTuner, name)]
    if absent:
        raise AutotuneError(
            f"FlashInfer {VERSION}'s AutoTuner has no {absent[0]}: the search knows FlashInfer"
            f" {FLASHINFERS[0].since} to {FLASHINFERS[-1].since}"
        )


@contextmanager
def tuning_mode(skip_ops: Collection[str], races_default: bool = False) -> Iterator[None]:
    """FlashInfer's context in which calls tune, `races_default` as some releases of SGLang use it."""
    if skip_ops and not WAYS.skips_ops:
        raise AutotuneError(
            f"FlashInfer {VERSION} cannot skip ops ({', '.join(sorted(skip_ops))}): 0.6.13 can"
        )
    skipped: dict[str, Any] = {"skip_ops": set(skip_ops)} if WAYS.skips_ops else {}
    if races_default and WAYS.has_v2:
        context = flashinfer.autotune_v2(mode="tune", persistent_cache=False, **skipped)
    else:
        context = autotune(True, **skipped)
    with context:
        yield


def skipped_ops(tuner: AutoTuner) -> frozenset[str]:
    return tuner._effective_skip_ops if WAYS.skips_ops else frozenset()


def search(
    tuner: AutoTuner,
    op: str,
    runners: Sequence[TunableRunner],
    shapes: Shapes,
    config: TuningConfig,
    inputs: list[Any],
    tuning: bool,
) -> tuple[bool, int, Any]:
    """Look up an entry: (hit, number of the runner, its tactic). While tuning, its policy must match, too."""
    policy = {"require_profiling_policy": tuning} if _ASKS_FOR_POLICY else {}
    hit, number, tactic, _ = tuner.search_cache(op, list(runners), shapes, config, inputs=inputs, **policy)
    return hit, number, tactic


def file_key(key: Any) -> str:
    """Return the file's key for a lookup's key, which is a tuple up to FlashInfer 0.6.14."""
    if not isinstance(key, tuple):
        return key.file_key
    op, runner, _, profile, extras = key
    return str((op, runner, profile, extras) if WAYS.has_extras else (op, runner, profile))


def runner_name(key: Any) -> str:
    return key[1] if isinstance(key, tuple) else key.runner_class_name


def nearest_profile(key: Any) -> Shapes:
    return key[3] if isinstance(key, tuple) else key.nearest_profile


def plain_tactic(tactic: Any) -> Any:
    """Return a tactic as a file gives it back, with tuples for lists."""
    return _json_to_tactic(_tactic_to_json(tactic))


def numbers_anew(runner: TunableRunner) -> bool:
    """Whether a tactic's number means another kernel in the next bucket: cuBLAS and cuDNN list their
    algorithms per shape."""
    return type(runner).__name__.startswith(("Cublas", "Cudnn"))


def allowed(tuner: AutoTuner, op: str, runner: TunableRunner, tactics: Any) -> Any:
    """Return the tactics that FLASHINFER_TACTICS_BLOCKLIST does not name; it exists since 0.6.15."""
    return tuner._blocklist.filter(op, runner, tactics) if hasattr(tuner, "_blocklist") else tactics


def measured_alone(tuner: Any, config: TuningConfig) -> bool:
    """Whether FlashInfer times each tactic alone, as with graphs, cold caches and other timers."""
    special = any(getattr(config, name, False) for name in ("use_cuda_graph", "use_cold_l2_cache"))
    return special or getattr(tuner, "_effective_measure_policy", None) is not None


def launches_when_prepared(runner: TunableRunner) -> bool:
    """Whether preparing a runner launches the tactic given to it. In the CUTLASS MoE the default tactic takes
    about six times as long as the best."""
    return hasattr(runner, "fused_moe_runner")


def precompile(
    runner: TunableRunner, tensors: list[Any], tactics: list[Any], *rest: Any, **kwargs: Any
) -> bool:
    """Whether the runner compiled the tactics itself, as it does since 0.7."""
    own = getattr(runner, "precompile_tactics", None)
    return own is not None and own(tensors, tactics, *rest, **kwargs)


def time_tactic(
    tuner: Any,
    runner: TunableRunner,
    tensors: list[Any],
    tactic: Any,
    config: TuningConfig,
    batches: list[list[Any]],
    **kwargs: Any,
) -> float:
    """Time a tactic with FlashInfer's clock, `tuner.repeat` times, on inputs that are prepared once."""
    if "profiling_repeat" in _CONFIG:
        config = replace(config, profiling_repeat=tuner.repeat)
    if _TAKES_BATCHES:
        kwargs["input_tensor_batches"] = batches
        return tuner._profile_single_kernel(runner, tensors, tactic, config, **kwargs)
    tuner._prepare_input_tensors_with_batches = lambda *_: batches
    try:
        return tuner._profile_single_kernel(runner, tensors, tactic, config, **kwargs)
    finally:
        del tuner._prepare_input_tensors_with_batches


def keep_winner(
    tuner: Any, key: Any, number: int, tactic: Any, profile: OptimizationProfile, config: TuningConfig
) -> None:
    """Store the winner where FlashInfer's own lookups and files find it."""
    winners = tuner._winner_cache() if hasattr(tuner, "_winner_cache") else tuner.profiling_cache
    winners[key] = (tactic, profile) if WAYS.matches_runners else (number, tactic, profile)
    if WAYS.keeps_policies:
        where = (tuner._winner_cache_identity(), key)
        tuner._profiling_cache_policies[where] = tuner._profiling_policy(config)
    tuner._dirty = True
    tuner._dirty_seq += 1


def keep_choice(tuner: Any, key: Any, result: BucketResult) -> None:
    """Store how the winner was chosen, which an entry holds since 0.7.4."""
    kept, time, ahead = getattr(tuner, "_profiling_cache_selections", None), result.best_ms, result.runner_up
    if kept is not None and time < inf:
        ahead = None if ahead is None else round(ahead, 6)
        second = None if ahead is None else round(time * (1 + ahead), 6)
        told = {"time_ms": round(time, 6), "runner_up_ms": second, "margin": ahead}
        kept[tuner._winner_cache_identity(), key] = {**told, "candidates": result.tactics}


def config_of_rows(
    buckets: tuple[int, ...],
    mapper: Callable[[int], int],
    inputs: tuple[int, ...],
    initializers: dict[int, Initializer],
) -> TuningConfig:
    """Return a configuration for inputs whose first dimension is the rows; some get synthetic contents."""
    rows = (inputs, (0,) * len(inputs), buckets, mapper)
    if "tensor_initializers" in _CONFIG:
        chosen = tuple(initializers.items())
        return TuningConfig(dynamic_tensor_specs=(DynamicTensorSpec(*rows),), tensor_initializers=chosen)
    of_spec: dict[str, Any] = {"tensor_initializers": [initializers.get(number) for number in inputs]}
    return TuningConfig(dynamic_tensor_specs=(DynamicTensorSpec(*rows, **of_spec),))

"""The entries that one call of `choose_one` looks up, in the form of a cache file, for every FlashInfer."""

from collections.abc import Iterator, Sequence
from typing import Any

Shapes = tuple[tuple[int, ...], ...]


def effective_config(tuner: Any, config: Any) -> Any:
    """Return the configuration that `choose_one` makes of `config` inside the active contexts."""
    overridden = (
        getattr(tuner, "_override_tuning_buckets", None) is not None
        or getattr(tuner, "_override_round_up", False)
        or getattr(tuner, "_override_cuda_graph_profile_replays", None) is not None
    )
    if overridden:
        config = tuner._apply_tuning_overrides(config)
    policy = getattr(tuner, "_effective_measure_policy", None)
    return config if policy is None else tuner._apply_measure_policy(config, policy)


def varying_size(config: Any, shapes: Shapes) -> int:
    """Return the size that varies, which is the rows in every op that a server tunes."""
    if not config.dynamic_tensor_specs:
        return 0
    spec = config.dynamic_tensor_specs[0]
    return shapes[spec.input_idx[0]][spec.dim_idx[0]]


def key_of(tuner: Any, op: str, runner: Any, shapes: Shapes, config: Any, inputs: Any) -> str:
    """Return the key as a cache file has it."""
    if hasattr(runner, "get_cache_key_extras"):
        key = tuner._get_cache_key(op, runner, shapes, config, runner.get_cache_key_extras(inputs))
    else:
        key = tuner._get_cache_key(op, runner, shapes, config)
    return str(getattr(key, "file_key", key))


def keys_of(tuner: Any, op: str, runner: Any, config: Any, inputs: Any) -> Iterator[tuple[int, str]]:
    """Yield each bucket with its key: all buckets in tuning mode, else that of the call's own rows."""
    if not tuner.is_tuning_mode:
        shapes = tuple(tuner._get_input_sizes(inputs))
        nearest = tuner._find_nearest_profile(shapes, config)
        yield varying_size(config, nearest), key_of(tuner, op, runner, shapes, config, inputs)
        return
    for profile in tuner._generate_optimization_profiles(config, inputs):
        shapes = profile.get_opt_shapes()
        yield varying_size(config, shapes), key_of(tuner, op, runner, shapes, config, inputs)


def lookup_of(tuner: Any, op: str, runners: Sequence[Any], config: Any, inputs: Any) -> dict[str, Any]:
    config = effective_config(tuner, config)
    policy = getattr(tuner, "_profiling_policy", None)
    return {
        "op": op,
        "runners": [type(runner).__name__ for runner in runners],
        "keys": list(dict.fromkeys(keys_of(tuner, op, runners[0], config, inputs))),
        "policy": list(policy(config)) if policy is not None else [],
    }


def is_skipped(tuner: Any, op: str) -> bool:
    return op in getattr(tuner, "_effective_skip_ops", ())

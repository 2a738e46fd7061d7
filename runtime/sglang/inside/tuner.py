"""Which keys FlashInfer's tuner is asked for, while it tunes and while it serves."""

from __future__ import annotations

import functools
from typing import Any

from runtime.ghost.inside.stream import say


class Asked:
    """Counts per (mode, op, key)."""

    def __init__(self) -> None:
        self.profiled = 0
        self._keys: dict[tuple[str, str, str], list[int]] = {}

    def count(self, mode: str, op: str, key: str) -> list[int]:
        return self._keys.setdefault((mode, op, key), [0, 0])

    def tell(self) -> None:
        for (mode, op, key), (asked, profiled) in self._keys.items():
            say("key", mode=mode, op=op, key=key, asked=asked, profiled=profiled)
        self._keys.clear()


def watch() -> Asked:
    asked = Asked()
    try:
        from flashinfer.autotuner import AutoTuner
    except ImportError:
        return asked
    choose, profile = AutoTuner.choose_one, AutoTuner._profile_single_kernel

    @functools.wraps(choose)
    def choose_one(self: Any, op: str, runners: Any, config: Any, inputs: Any, **more: Any) -> Any:
        mode = "tune" if self.is_tuning_mode else "serve"
        counts = asked.count(mode, op, _key(self, op, runners[0], config, inputs))
        counts[0] += 1
        before = asked.profiled
        chosen = choose(self, op, runners, config, inputs, **more)
        counts[1] += asked.profiled - before
        return chosen

    @functools.wraps(profile)
    def profile_single_kernel(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked.profiled += 1
        return profile(self, *args, **kwargs)

    setattr(AutoTuner, "choose_one", choose_one)  # noqa: B010
    setattr(AutoTuner, "_profile_single_kernel", profile_single_kernel)  # noqa: B010
    return asked


def _key(tuner: Any, op: str, runner: Any, config: Any, inputs: Any) -> str:
    """The key in the form that a cache file has it."""
    shapes = tuple(tuner._get_input_sizes(inputs))
    if hasattr(runner, "get_cache_key_extras"):
        key = tuner._get_cache_key(op, runner, shapes, config, runner.get_cache_key_extras(inputs))
    else:
        key = tuner._get_cache_key(op, runner, shapes, config)
    return str(getattr(key, "file_key", key))

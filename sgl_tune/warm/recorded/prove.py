"""The proof of a record: every recorded call is made again, all its lookups must hit, and nothing may be
measured."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import runtime.flashinfer.inside.calls  # noqa: F401  before FlashInfer, whose public functions it marks
from runtime.flashinfer.inside.lookups import is_skipped, key_of
from runtime.ghost.inside import hooks
from runtime.moe.flashinfer_call import forget_ranges
from runtime.record.calls import Call, Context
from sgl_tune.processes.child import Child
from sgl_tune.warm.job import CallCache
from sgl_tune.warm.prove import Answers, CacheProof, serve

if TYPE_CHECKING:
    from flashinfer.autotuner import AutoTuner

    from runtime.devices.base import Device
    from runtime.flashinfer.replay import Ready


def main(child: Child) -> None:
    hooks.install()
    serve(child, RecordProof, ("runtime.flashinfer.replay",))


class RecordProof(CacheProof):
    _cache: CallCache
    patience_seconds = 1.0

    def __init__(self, cache: CallCache, device: "Device", tuner: "AutoTuner") -> None:
        from runtime.flashinfer.replay import Pool

        super().__init__(cache, device, tuner)
        self._pool = Pool(device.torch_device)

    def ask(self, as_a_start: bool) -> Answers:
        """Make FlashInfer's own lookup for each key of the record, and tune nothing."""
        asked: dict[str, bool] = {}
        for call in self._cache.calls:
            with self._ready(call) as ready, _only_asked(self._tuner) as found, suppress(Exception):
                ready.make()  # it runs the default tactic and may fail: only its lookups count
            asked |= {key: found.get(key, False) for key in call.keys}
        missing = {key for key, hit in asked.items() if not hit}
        if as_a_start and not missing:
            # An entry that was measured with another policy than the lookup's would be tuned now.
            for call in self._cache.calls:
                if call.mode == "tune":
                    with self._ready(call) as ready:
                        ready.make()
            self._device.synchronize()
        return Answers(len(asked), len(asked) - len(missing), missing)

    @contextmanager
    def _ready(self, call: Call, contexts: tuple[Context, ...] | None = None) -> "Iterator[Ready]":
        import torch

        from runtime.flashinfer.replay import Ready, opened, tuning_contexts

        own = call.contexts if call.mode == "tune" else tuning_contexts(self._cache.calls)
        with torch.inference_mode(), opened(own if contexts is None else contexts):
            ready = Ready(call, self._pool)
            forget_ranges()
            yield ready
        self._pool.give_back()

    @contextmanager
    def largest(self) -> Iterator[tuple[int, Callable[[], object]]]:
        call = max(self._cache.calls, key=_rows)
        with self._ready(call, ()) as ready:
            yield _rows(call), ready.make

    def capture(self) -> None:
        from runtime.autotune.layer import Graphs

        with self._ready(self._cache.calls[0], ()) as ready:
            ready.make()
            Graphs().captured(ready.make)


def _rows(call: Call) -> int:
    return max(size for lookup in call.lookups for size, _ in lookup.keys)


@contextmanager
def _only_asked(tuner: Any) -> Iterator[dict[str, bool]]:
    """Yield a table of each key that is looked up and whether it is found. The caller gets the default
    tactic."""
    from runtime.autotune.installed import effective_config, search

    found: dict[str, bool] = {}

    def choose_one(op: str, runners: Any, config: Any, inputs: Any, **_: Any) -> Any:
        if not is_skipped(tuner, op):
            config = effective_config(tuner, config)
            for profile in tuner._generate_optimization_profiles(config, inputs):
                shapes = profile.get_opt_shapes()
                hit, _number, _tactic = search(tuner, op, runners, shapes, config, inputs, tuning=True)
                found[key_of(tuner, op, runners[0], shapes, config, inputs)] = hit
        return runners[0], -1

    tuner.choose_one = choose_one
    try:
        yield found
    finally:
        del tuner.choose_one

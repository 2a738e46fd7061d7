"""A worker that repeats recorded calls under our search. It imports torch and FlashInfer, but no server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import runtime.flashinfer.inside.calls  # noqa: F401  before FlashInfer, whose public functions it marks
from runtime.flashinfer.inside.lookups import is_skipped, lookup_of
from runtime.ghost.inside import hooks
from runtime.moe.flashinfer_call import forget_ranges
from runtime.record.calls import Call
from sgl_tune.errors import WorkFailed
from sgl_tune.processes.child import Child
from sgl_tune.warm.job import CallCache
from sgl_tune.warm.worker import Search, serve

if TYPE_CHECKING:
    from runtime.autotune.layer import LayerTrial
    from runtime.autotune.session import Tuned
    from runtime.flashinfer.replay import Ready


def main(child: Child) -> None:
    hooks.install()
    serve(child, CallSearch)


class CallSearch(Search):
    def _import(self) -> None:
        import runtime.flashinfer.replay
        import runtime.moe.layer_trial  # noqa: F401

    def _asking(self, cache: CallCache) -> Callable[[], Tuned]:
        def ask() -> Tuned:
            from runtime.autotune.session import Tuned

            tuner, started = self._tuner, time.perf_counter()
            known, made = len(tuner.results), tuner.calls
            for call in cache.calls:
                self._make(call, cache.calls)
            buckets = tuple(tuner.results[known:])
            return Tuned("recorded calls", tuner.calls - made, buckets, time.perf_counter() - started)

        return ask

    def _make(self, call: Call, calls: tuple[Call, ...]) -> None:
        """Search one call. Its lookups must be those of the record."""
        import torch

        from runtime.autotune.layer import tuned_in
        from runtime.flashinfer.replay import CannotMake, Pool, Ready, opened, tuning_contexts

        self._pool = getattr(self, "_pool", None) or Pool(self._device.torch_device)
        contexts = call.contexts if call.mode == "tune" else tuning_contexts(calls)
        self._tuner.only = frozenset(call.keys)
        try:
            with torch.inference_mode(), opened(contexts):
                ready = Ready(call, self._pool)
                forget_ranges()
                with _asked(self._tuner) as asked, tuned_in(trial_of(call, ready)):
                    ready.make()
        except CannotMake as error:
            raise WorkFailed(f"a recorded call cannot be replayed: {error}") from error
        finally:
            self._tuner.only = None
        self._pool.give_back()
        check_keys(call, asked)


@contextmanager
def _asked(tuner: Any) -> Iterator[set[str]]:
    """Yield the keys that the tuner looks up, spelled as in a record."""
    keys: set[str] = set()
    choose = tuner.choose_one

    def choose_one(op: str, runners: Any, config: Any, inputs: Any, **more: Any) -> Any:
        if not is_skipped(tuner, op):
            keys.update(key for _, key in lookup_of(tuner, op, runners, config, inputs)["keys"])
        return choose(op, runners, config, inputs, **more)

    tuner.choose_one = choose_one
    try:
        yield keys
    finally:
        del tuner.choose_one


def check_keys(call: Call, asked: set[str]) -> None:
    """Check that a call looks up the recorded keys. A call recorded while serving looks up more when it
    tunes."""
    recorded = set(call.keys)
    missing, odd = recorded - asked, (asked - recorded if call.mode == "tune" else set())
    if missing or odd:
        which, what = (min(missing), "does not ask for") if missing else (min(odd), "asks for more:")
        raise WorkFailed(
            f"{call.function} {what} {which} here: {len(missing)} keys of the record are missing,"
            f" {len(odd)} are not in it",
            "replay a record with the FlashInfer and on the kind of GPU that it was made for",
        )


def trial_of(call: Call, ready: Ready) -> LayerTrial | None:
    """Return a trial of the whole call, in which its two ops are decided together, or None if its number
    of tokens cannot be varied."""
    import inspect

    import torch

    from runtime.moe.layer_trial import OPS, cutlass_trial

    ops = tuple(dict.fromkeys(lookup.op for lookup in call.lookups))
    if not call.function.endswith(":cutlass_fused_moe") or ops != OPS:
        return None
    named = inspect.signature(ready.function).parameters.items()
    given = {name: one.default for name, one in named if one.default is not one.empty} | ready.given
    if isinstance(given.get("input_sf"), torch.Tensor):
        return None
    if given.get("output") is None:
        hidden = given["fc2_expert_weights"].shape[1]
        given["output"] = torch.empty(
            (given["input"].shape[0], hidden), dtype=given["output_dtype"], device=given["input"].device
        )
    return cutlass_trial(ready.function, given)

"""Makes recorded calls again, one at a time, so that FlashInfer's tuner gets the lookups of the record."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict

import torch

from runtime.flashinfer.arguments import (
    CannotMake,
    Maker,
    Pool,
    expert_count,
    parameter_names,
    public_function,
)
from runtime.record.calls import Call, Context

_OFF_DISK = {"cache": None, "cache_root": None, "persistent_cache": False}


class Ready:
    """A call that can be made, with everything it needs. `given` are its arguments by name."""

    def __init__(self, call: Call, pool: Pool) -> None:
        if call.unreplayable:
            raise CannotMake(f"{call.function}: {call.unreplayable}")
        self.function = public_function(call.function)
        names = parameter_names(self.function)
        by_name = {**dict(zip(names, call.arguments, strict=False)), **call.named}
        maker = Maker([asdict(one) for one in call.storages], expert_count(by_name), pool)
        self._arguments, self._named = maker.all(self.function, call.arguments, call.named)
        self.given = {**dict(zip(names, self._arguments, strict=False)), **self._named}

    def make(self) -> object:
        return self.function(*self._arguments, **self._named)


@contextmanager
def opened(contexts: Sequence[Context]) -> Iterator[None]:
    """Open FlashInfer's contexts as they were open around the call, but without their files."""
    import flashinfer

    nothing = Maker((), 1, Pool(torch.device("cpu")))
    with ExitStack() as stack:
        for one in contexts:
            enter = getattr(flashinfer, one.name, None)
            if enter is None:
                raise CannotMake(f"the FlashInfer here has no {one.name}")
            given = {name: nothing.one(value, name) for name, value in one.arguments.items()}
            known = inspect.signature(enter).parameters
            off_disk = {name: value for name, value in _OFF_DISK.items() if name in known}
            stack.enter_context(enter(**{**given, **off_disk}))
        yield


def tuning_contexts(calls: Sequence[Call]) -> tuple[Context, ...]:
    """Return the contexts of the first tuning call. Calls that only serve are tuned under the same ones."""
    return next((call.contexts for call in calls if call.mode == "tune"), (Context("autotune", {}),))

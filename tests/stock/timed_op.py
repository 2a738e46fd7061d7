"""An op whose tactics take as long as they are told to, or fail: what a search must find is known."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from flashinfer.autotuner import AutoTuner, DynamicTensorSpec, TunableRunner, TuningConfig

OP = "tests::timed"
TOKENS = (1, 2, 4)


def next_bucket(rows: int) -> int:
    return min(token for token in TOKENS if token >= min(rows, TOKENS[-1]))


class Timed(TunableRunner):
    """Tactic n spins for `times[n]` milliseconds, or raises what `failures[n]` makes."""

    def __init__(
        self,
        times: dict[Any, float],
        failures: dict[Any, Callable[[], Exception]] | None = None,
        inner: Callable[[], object] | None = None,
    ) -> None:
        self.times = times
        self.failures = failures or {}
        self.inner = inner
        self.launches = Counter[Any]()
        self.prepared = 0

    def __hash__(self) -> int:
        return 1

    def get_cache_key_extras(self, inputs: list[Any]) -> tuple[Any, ...]:
        return ("timed",)

    def get_valid_tactics(self, inputs: list[Any], profile: Any) -> list[Any]:
        return [tactic for tactic in self.times if tactic != -1]

    def forward(self, inputs: list[Any], tactic: Any = -1, do_preparation: bool = False, **_: Any) -> None:
        if do_preparation:
            self.prepared += 1
            return
        self.launches[tactic] += 1
        if tactic in self.failures:
            raise self.failures[tactic]()
        if self.inner is not None:
            self.inner()
        end = time.perf_counter() + self.times[tactic] / 1e3
        while time.perf_counter() < end:
            pass


CONFIG = TuningConfig(dynamic_tensor_specs=(DynamicTensorSpec((0,), (0,), TOKENS, next_bucket),))
# So far apart that a busy machine cannot confuse them: 1 is the best, then 3, then 2.
TIMES = {-1: 2.4, 0: 1.2, 1: 0.15, 2: 0.6, 3: 0.3}


def ask(runner: TunableRunner, rows: int = 1, op: str = OP, width: int = 3) -> Any:
    """The tactic that the installed tuner chooses."""
    return AutoTuner.get().choose_one(op, [runner], CONFIG, [torch.ones(rows, width)])[1]


def key(tokens: int, op: str = OP, width: int = 3) -> str:
    return f"('{op}', 'Timed', (({tokens}, {width}),), ('timed',))"

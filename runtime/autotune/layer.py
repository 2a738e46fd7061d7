"""Judges tactics by the time of the whole layer with all its ops, on routings shared by all tactics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf
from typing import Any, Protocol

import torch
from flashinfer.autotuner import AutoTuner

from runtime.autotune.candidate import Candidate
from runtime.autotune.errors import TuningOutOfMemory, first_line, memory_watched
from runtime.autotune.timed_tuner import LaunchQueue

SEED = 20
SKEWS = (0.0, 0.5)  # standard deviations of an expert's popularity, in logits whose own is 1
# Below this the host is slower than the device, so the layer runs as a graph, like a server's decode.
_GRAPH_BELOW_MS = 0.4
# The host's time for one forward, and for one launch of a graph.
_FORWARD_US = 330.0
_GRAPH_US = 12.0

Combination = tuple[Candidate, ...]


class LayerBatch(Protocol):
    """Tokens of a layer. `route` changes their experts in place, so that later runs share the routing."""

    def route(self, number: int) -> None: ...

    def forward(self, tactics: Sequence[Any]) -> object:
        """Run the layer with one tactic for each op."""


@dataclass(frozen=True, slots=True)
class LayerTrial:
    """A layer and its ops; `batch` makes a batch of a number of rows from a seed."""

    ops: tuple[str, ...]
    batch: Callable[[int, int], LayerBatch]


@contextmanager
def tuned_in(trial: LayerTrial | None) -> Iterator[None]:
    """Around a call of the layer: choose the tactics of all ops tuned inside before the call ends."""
    of_layer = getattr(AutoTuner.get(), "of_layer", None)
    if trial is None or of_layer is None:
        yield
        return
    with of_layer(trial):
        yield


@dataclass
class LayerRace:
    """The clock of `settle`: each round has a routing of its own, which all combinations share."""

    trial: LayerTrial
    rows: int
    layer_ms: float
    seed: int = SEED
    failures: dict[Combination, str] = field(default_factory=dict)
    _runs: dict[Combination, Callable[[], object]] = field(default_factory=dict)
    _round: int = 0

    @property
    def _where(self) -> str:
        return f"a layer of {self.rows} rows"

    @cached_property
    def _batch(self) -> LayerBatch:
        return self.trial.batch(self.rows, self.seed)

    def __call__(self, combinations: Sequence[Combination], launches: int) -> list[float]:
        with memory_watched(self._where):
            self._batch.route(self._round)
        self._round += 1
        runs = [self._run(combination) for combination in combinations]
        sound = [run for run in runs if run is not None]
        times = iter(self._queue.times(sound, launches, self.layer_ms) if sound else [])
        return [inf if run is None else next(times) for run in runs]

    def _run(self, combination: Combination) -> Callable[[], object] | None:
        if combination not in self._runs and combination not in self.failures:
            try:
                with memory_watched(self._where):
                    self._runs[combination] = self._ready(combination)
            except TuningOutOfMemory:
                raise
            except Exception as error:  # a tactic may fail in any way; it only loses
                self.failures[combination] = first_line(error)
        return self._runs.get(combination)

    def _ready(self, combination: Combination) -> Callable[[], object]:
        tactics = [candidate.tactic for candidate in combination]
        forward = partial(self._batch.forward, tactics)
        forward()
        return self._graphs.captured(forward) if self._as_graph else forward

    @property
    def _as_graph(self) -> bool:
        return self.layer_ms < _GRAPH_BELOW_MS

    @cached_property
    def _graphs(self) -> Graphs:
        return Graphs()

    @cached_property
    def _queue(self) -> LaunchQueue:
        return LaunchQueue(_GRAPH_US if self._as_graph else _FORWARD_US)


class Graphs:
    """Graphs that run one after the other, so they share one stream and one memory pool. torch.cuda.graph is
    not used, because it empties the allocator's cache each time."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()
        self._pool: Any = None

    def captured(self, run: Callable[[], object]) -> Callable[[], object]:
        """Capture a graph and replay it once, because the first replay is slow and must not be measured."""
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            graph.capture_begin(self._pool, capture_error_mode="thread_local")
            try:
                run()
            finally:
                graph.capture_end()
        self._pool = graph.pool()
        torch.cuda.current_stream().wait_stream(self._stream)
        graph.replay()
        return graph.replay

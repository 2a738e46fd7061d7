"""Measures milliseconds per forward of a layer under each choice. Forwards are CUDA graphs, as in a server's
decode, because launches would dominate batches of few rows."""

from collections.abc import Sequence
from itertools import pairwise
from math import inf

import torch

from runtime.moe_configs.layer import Layers
from runtime.moe_configs.search import PRESENT, Named

_LEAD_CYCLES = 200_000
_TOLERANCE = 0.05  # of a layer's output: another order of sums in 16 bits


class GraphClock:
    """One batch size. A graph runs the layer once per routing, and all choices get the same routings."""

    def __init__(self, layer: Layers, rows: int, turns: int) -> None:
        self._layer, self._batch = layer, layer.batch(rows, turns)
        self._graphs: dict[Named, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()
        self._right: torch.Tensor | None = None
        self.failures: dict[Named, str] = {}

    def __call__(self, names: Sequence[Named], launches: int) -> list[float]:
        graphs = [self._graph(name) for name in names]
        sound = [graph for graph in graphs if graph is not None]
        times = iter(self._times(sound, launches))
        return [inf if graph is None else next(times) for graph in graphs]

    def _times(self, graphs: Sequence[torch.cuda.CUDAGraph], launches: int) -> list[float]:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(graphs) + 1)]
        torch.cuda._sleep(_LEAD_CYCLES)
        events[0].record()
        for graph, event in zip(graphs, events[1:], strict=True):
            for _ in range(launches):
                graph.replay()
            event.record()
        events[-1].synchronize()
        runs = launches * len(self._batch)
        return [before.elapsed_time(after) / runs for before, after in pairwise(events)]

    def _graph(self, name: Named) -> torch.cuda.CUDAGraph | None:
        if name not in self._graphs and name not in self.failures:
            try:
                self._graphs[name] = self._captured(name)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # a configuration may fail in any way; it only loses
                self.failures[name] = f"{type(error).__name__}: {str(error)[:200]}"
                torch.cuda.synchronize()
        return self._graphs.get(name)

    def _captured(self, name: Named) -> torch.cuda.CUDAGraph:
        with self._layer.under(name):
            self._check(self._batch[0]())
            graph = torch.cuda.CUDAGraph()
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                graph.capture_begin(self._pool, capture_error_mode="thread_local")
                try:
                    for forward in self._batch:
                        forward()
                finally:
                    graph.capture_end()
            torch.cuda.current_stream().wait_stream(self._stream)
        graph.replay()
        return graph

    def _check(self, answer: torch.Tensor) -> None:
        """Refuse a choice whose output differs from that of the server's own configuration."""
        if self._right is None:
            with self._layer.under(PRESENT):
                self._right = self._batch[0]().float().clone()
        off = (answer.float() - self._right).abs().max() / self._right.abs().max().clamp(min=1e-6)
        if not bool(off <= _TOLERANCE):
            raise ValueError(f"its answer is {float(off):.3f} off")

"""Capture policies and graph runners: sizes, order, pools, padding, and what later captures reuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runtime.forward.logits_processor import LogitsOutput
from runtime.graphs.draft import best_branches
from runtime.server.choices.graphs import decode_graph_sizes
from runtime.server.parallel import ParallelConfig
from runtime.server.sizes.batches import captured_sizes
from runtime.server.units import MIB
from runtime.start.model_runner import ModelRunner
from tests.runtime.starts import make_meta, make_preset, make_qwen, make_runner, make_runtime


def _started(**kwargs: Any) -> ModelRunner:
    runner = make_runner(make_qwen(), make_meta(), **kwargs)
    runner.start()
    return runner


class TestSizes:
    def test_decode_graphs_stop_at_the_requests_that_may_run(self) -> None:
        runtime = make_runtime(decode_graphs=decode_graph_sizes(256))
        graphs = captured_sizes(4096, ParallelConfig(), runtime)
        assert (len(graphs), graphs[-1]) == (36, 256)
        assert captured_sizes(20, ParallelConfig(), runtime)[-2:] == (16, 20)

    def test_gathered_rows_must_split_over_attention_tp(self) -> None:
        parallel = ParallelConfig(tp=8, dp=2, enable_dp_attention=True)
        runtime = make_runtime(decode_graphs=decode_graph_sizes(16))
        assert captured_sizes(64, parallel, runtime) == (4, 8, 12, 16)

    def test_no_graphs_when_they_are_off(self) -> None:
        assert captured_sizes(64, ParallelConfig(), make_runtime(decode_graphs=())) == ()


class TestOrder:
    def test_ascending_order_needs_more_memory(self) -> None:
        model, peaks = make_preset("Llama-3.1-8B"), {}
        for ascending in (False, True):
            graphs = decode_graph_sizes(256)
            runtime = make_runtime(dtype="bfloat16", decode_graphs=graphs, max_running_requests=256)
            runner = make_runner(model, make_meta(), runtime=runtime, graphs_ascending=ascending)
            runner.start()
            [phase] = (p for p in runner.recorder.phases if p.name == "decode graphs")
            peaks[ascending] = phase.reserved_bytes
        assert peaks[True] - peaks[False] > 1000 * MIB

    @pytest.mark.parametrize("ascending", [False, True])
    def test_the_largest_is_captured_first(self, ascending: bool) -> None:
        runner = _started(graphs_ascending=ascending)
        assert runner.decode_graphs is not None
        assert list(runner.decode_graphs.graphs) == sorted((1, 2, 4, 8), reverse=not ascending)


def test_best_branches_gives_the_likeliest_tokens_of_each_request() -> None:
    """Two requests with two branches each, and a vocabulary of three."""
    probabilities = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.5, 0.4, 0.1], [0.3, 0.3, 0.4]])
    scores = torch.tensor([[0.6, 0.4], [0.9, 0.1]]).log()
    out = LogitsOutput(probabilities.log())
    tokens, totals, rows = best_branches(out, scores, 2)
    assert tokens.tolist() == [0, 2, 0, 1]
    assert rows.tolist() == [0, 1, 2, 2]
    torch.testing.assert_close(totals.exp(), torch.tensor([[0.42, 0.32], [0.45, 0.36]]))

"""Capture policies and graph runners: sizes, order, pools, padding, and what later captures reuse."""

from typing import Any

import pytest
import torch

from runtime.forward.logits_processor import DummyRunLeak, LogitsOutput, autotune_dummy_run_mode
from runtime.graphs.draft import best_branches
from runtime.server.choices.graphs import decode_graph_sizes
from runtime.server.config import SpeculativeConfig
from runtime.server.parallel import ParallelConfig
from runtime.server.sizes.batches import captured_sizes
from runtime.start.model_runner import ModelRunner
from tests.runtime.starts import make_meta, make_qwen, make_runner, make_runtime

DP4 = ParallelConfig(tp=4, dp=4, enable_dp_attention=True)


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
    @pytest.mark.parametrize("ascending", [False, True])
    def test_the_largest_is_captured_first(self, ascending: bool) -> None:
        runner = _started(graphs_ascending=ascending)
        assert runner.decode_graphs is not None
        assert list(runner.decode_graphs.graphs) == sorted((1, 2, 4, 8), reverse=not ascending)


class TestRunners:
    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({}, {"draft": [2] * 4, "draft_extend": [2 * 4] * 4, "decode": [2 * 4] * 4}),
            ({"eagle_topk": 2}, {"draft": [2 * 2] * 4}),
        ],
    )
    def test_each_runners_global_token_counts(self, settings: dict, expected: dict) -> None:
        runtime = make_runtime(speculative=SpeculativeConfig(**settings))
        runner = _started(parallel=DP4, runtime=runtime)
        assert runner.decode_graphs and runner.draft_runners and runner.draft_runners.steps
        runners = runner.decode_graphs, runner.draft_runners.steps, runner.draft_runners.extend
        counts = {r.name: r._dp_tokens(2).global_num_tokens_cpu for r in runners}
        assert expected.items() <= counts.items()
        # the head, for one row a request
        assert runner.draft_runners.extend._dp_tokens(2).logprob_num_tokens_cpu == [2] * 4

    def test_capture_never_runs_in_the_dummy_mode(self) -> None:
        """The mode cannot start inside a capture either, because it would drop logits that are needed."""
        runner = _started()
        assert runner.decode_graphs is not None
        with autotune_dummy_run_mode(), pytest.raises(DummyRunLeak, match="capturing decode graphs"):
            runner.decode_graphs.capture()


def test_best_branches_gives_the_likeliest_tokens_of_each_request() -> None:
    """Two requests with two branches each, and a vocabulary of three."""
    probabilities = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.5, 0.4, 0.1], [0.3, 0.3, 0.4]])
    scores = torch.tensor([[0.6, 0.4], [0.9, 0.1]]).log()
    out = LogitsOutput(probabilities.log())
    tokens, totals, rows = best_branches(out, scores, 2)
    assert tokens.tolist() == [0, 2, 0, 1]
    assert rows.tolist() == [0, 1, 2, 2]
    torch.testing.assert_close(totals.exp(), torch.tensor([[0.42, 0.32], [0.45, 0.36]]))

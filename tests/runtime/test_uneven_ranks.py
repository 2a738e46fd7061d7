"""Attention-DP ranks with other numbers of requests than their peers, or none: graphs or not, but alike."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.devices.cpu import Cpu
from runtime.forward.batch import (
    ForwardBatch,
    dummy_decode_batch,
    make_decode_batch,
    make_extend_batch,
    make_idle_batch,
)
from runtime.forward.comm import Communicator, VirtualCommunicator
from runtime.forward.logits_processor import LogitsOutput
from runtime.forward.peers import Brings, GraphKind, agreed, brings, meet
from runtime.server.parallel_config import ParallelConfig
from runtime.start.model_runner import ModelRunner
from runtime.start.options import StartOptions
from tests.runtime.configs import model_of
from tests.runtime.families import VOCAB, make_reference, reference_logits, save
from tests.runtime.ranks import Ranks
from tests.runtime.starts import make_runtime

CPU = torch.device("cpu")
DP2 = ParallelConfig(tp=2, dp=2, enable_dp_attention=True)
DP4 = ParallelConfig(tp=4, dp=4, ep=4, enable_dp_attention=True)
GROUPS = ParallelConfig(tp=4, dp=2, ep=2, enable_dp_attention=True)


@pytest.mark.parametrize(
    ("proposed", "kind"),
    [
        ((1, 1), GraphKind.DECODE),
        ((2, 3), GraphKind.PREFILL),
        ((1, 3, 3, 1), GraphKind.DECODE),
        ((1, 0), GraphKind.NONE),
        ((1, 2), GraphKind.NONE),
        ((3, 3), GraphKind.NONE),
    ],
)
def test_one_rank_that_cannot_takes_the_graph_from_all(proposed: Sequence[int], kind: GraphKind) -> None:
    assert agreed(proposed) is kind


def test_what_a_batch_brings() -> None:
    idle = brings(make_idle_batch(CPU), GraphKind.ANY)
    assert idle == Brings(0, 0, False, GraphKind.ANY)
    peers, kind = meet(brings(dummy_decode_batch(3, 1, CPU), GraphKind.DECODE), VirtualCommunicator(DP2))
    assert (list(peers.tokens), list(peers.heads), peers.is_extend) == ([3, 3], [3, 3], False)
    assert kind is GraphKind.DECODE


def _tokens(length: int) -> list[int]:
    """A prompt and the two tokens that are decoded after it."""
    return [(7 * place + length) % VOCAB for place in range(length)] + [11, 12]


Graphs = dict[str, tuple[int, ...]]
_SEVERAL: Graphs = {"prefill_graphs": (16, 32), "decode_graphs": (1, 4, 8)}
_ONE_EACH: Graphs = {"prefill_graphs": (16,), "decode_graphs": (4,)}  # most of a small start is its captures


def _serve(
    comm: Communicator, parallel: ParallelConfig, folder: Path, lens: Sequence[Sequence[int]], graphs: Graphs
) -> Any:
    """A prefill of this rank's prompts and two decodes: its logits, and which steps were replayed."""
    model = model_of(json.loads((folder / "config.json").read_text()))
    options = StartOptions(kv_tokens=512, weights=folder)
    runtime = make_runtime(max_running_requests=40, **graphs)
    runner = ModelRunner(model, parallel, runtime, Cpu(), lambda: comm, options=options)
    runner.start()
    replayed: list[str] = []
    for captured in (runner.prefill_graphs, runner.decode_graphs):
        if captured is not None:
            _watch(captured, replayed)
    texts = [_tokens(length) for length in lens[comm.layout.attn_dp_rank]]
    requests = runner.kv.requests.allocate(len(texts))
    rows = []
    for step in range(3):
        batch = _step(runner, texts, requests, step) if texts else make_idle_batch(CPU)
        output = runner.forward(batch)
        assert isinstance(output, LogitsOutput) and output.next_token_logits is not None
        rows.append(output.next_token_logits.tolist())
    return rows, replayed


def _step(runner: ModelRunner, texts: list[list[int]], requests: list[int], step: int) -> ForwardBatch:
    if step == 0:
        return make_extend_batch([text[:-2] for text in texts], requests, runner.kv)
    before = [len(text) - 3 + step for text in texts]
    new = [text[at] for text, at in zip(texts, before, strict=True)]
    return make_decode_batch(new, requests, runner.kv, before)


def _watch(graphs: Any, replayed: list[str]) -> None:
    forward = graphs.forward

    def watched(batch: ForwardBatch) -> Any:
        replayed.append(graphs.name)
        return forward(batch)

    graphs.forward = watched


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def make(family: str) -> tuple[Path, Any]:
        model = make_reference(family, num_key_value_heads=4)
        return save(model, tmp_path_factory.mktemp(family)), model

    return make


@pytest.mark.parametrize(
    ("parallel", "lens", "replayed"),
    [
        (DP2, [[5, 4], []], ["prefill", "decode", "decode"]),
        (DP2, [[2], [3] * 9], []),  # more requests than a graph of either kind holds
        (DP2, [[1] * 8, [9]], ["prefill", "decode", "decode"]),
        (DP4, [[6], [], [3, 3, 3], []], ["prefill", "decode", "decode"]),
        (GROUPS, [[], [4, 7, 2]], ["prefill", "decode", "decode"]),
        (GROUPS, [[20], [30]], ["prefill", "decode", "decode"]),
        (GROUPS, [[2], [40]], ["decode", "decode"]),  # the prefill is longer than its graphs
    ],
)
def test_uneven_ranks_answer_as_transformers_does(
    ranks: Ranks,
    saved: Any,
    parallel: ParallelConfig,
    lens: list[list[int]],
    replayed: list[str],
) -> None:
    _check(ranks, saved("qwen3_moe"), parallel, lens, replayed, _SEVERAL)


@pytest.mark.parametrize(
    ("family", "parallel", "lens", "replayed"),
    [
        ("qwen3_next", DP2, [[5, 4], []], ["prefill", "decode", "decode"]),
        ("qwen3_next", DP4, [[6], [], [3, 3, 3], []], ["prefill", "decode", "decode"]),
        ("nemotron_h", DP2, [[5, 4], []], ["prefill", "decode", "decode"]),
        ("nemotron_h", GROUPS, [[2], [40]], ["decode", "decode"]),
        ("gemma3_text", DP2, [[9], []], ["prefill", "decode", "decode"]),
        ("glm4_moe", GROUPS, [[], [4, 9, 2]], ["prefill", "decode", "decode"]),
        ("gpt_oss", GROUPS, [[], [4, 9, 2]], ["prefill", "decode", "decode"]),
    ],
)
def test_uneven_ranks_of_other_families_do_too(
    ranks: Ranks,
    saved: Any,
    family: str,
    parallel: ParallelConfig,
    lens: list[list[int]],
    replayed: list[str],
) -> None:
    _check(ranks, saved(family), parallel, lens, replayed)


def _check(
    ranks: Ranks,
    saved: tuple[Path, Any],
    parallel: ParallelConfig,
    lens: list[list[int]],
    replayed: list[str],
    graphs: Graphs = _ONE_EACH,
) -> None:
    folder, model = saved
    found = ranks.run(parallel, _serve, parallel, folder, lens, graphs)
    assert [used for _, used in found] == [replayed] * parallel.world_size
    for rank, (rows, _) in enumerate(found):
        mine = lens[rank // parallel.attn_tp]
        want = [reference_logits(model, _tokens(length))[-3:] for length in mine]
        for step, got in enumerate(rows):
            assert len(got) == len(mine)
            for row, expected in zip(got, want, strict=True):
                torch.testing.assert_close(torch.tensor(row), expected[step], atol=1e-4, rtol=0)

"""Graphs of a draft of blocks: what they leave, and the words that its target's head makes of their rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from runtime.devices.base import Device
from runtime.devices.cpu import Cpu
from runtime.forward.comm import Communicator
from runtime.graphs.block_draft import BlockDraftGraphs
from runtime.graphs.places import Places, logits_of_draft, rows_apart
from runtime.layers.embedding import VocabTable
from runtime.models.block_words import BlockWords
from runtime.server.decoders.known import model_config
from runtime.server.graphs import decode_graph_sizes
from runtime.server.own_draft import OwnDraft
from runtime.server.parallel_config import ParallelConfig
from runtime.server.releases import release_named
from runtime.server.speculative_config import SpeculativeConfig
from runtime.start.model_runner import ModelRunner
from tests.runtime.ranks import Ranks
from tests.runtime.starts import make_meta, make_qwen, make_runner, make_runtime

WIDTH, WORDS = 4, 320
CONFIG = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "vocab_size": WORDS,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "hidden_act": "silu",
    "torch_dtype": "float32",
    "dflash_config": {"target_layer_ids": [0, 1], "block_size": WIDTH},
}
TP2 = ParallelConfig(tp=2)


def _runner(
    device: Device, version: str | None = None, parallel: ParallelConfig = ParallelConfig(), **told: Any
) -> ModelRunner:
    speculative = SpeculativeConfig("DFLASH", 1, 1, WIDTH)
    sizes = decode_graph_sizes(8, speculative=True)
    changes = {"speculative": speculative, "kv_cache_dtype": "float32", "sglang_version": version}
    runtime = make_runtime(decode_graphs=sizes, **changes)
    own = OwnDraft(model_config(CONFIG), replace(runtime, attention_backend="triton"), parallel, (1, 2), 0)
    runner = make_runner(make_qwen(), device, parallel, runtime, own_draft=own, **told)
    runner.start()
    return runner


def _graphs(runner: ModelRunner) -> BlockDraftGraphs:
    assert runner.draft_runners is not None and not runner.draft_runners.extends
    assert isinstance(runner.draft_runners.steps, BlockDraftGraphs)
    return runner.draft_runners.steps


@pytest.mark.parametrize("device", [Cpu, make_meta])
def test_one_graph_a_size_decodes_whole_blocks(device: Any) -> None:
    graphs = _graphs(_runner(device()))
    assert set(graphs.graphs) == set(graphs.sizes) and graphs.tokens(2) == 2 * WIDTH


def test_the_words_of_a_block_are_what_its_targets_head_likes_best() -> None:
    runner = _runner(Cpu())
    graphs, head = _graphs(runner), runner.decoder.head
    assert graphs.words is not None and graphs.embedded is not None and head is not None
    batch = graphs.dummy_batch(3)
    graphs.embedded.copy_(torch.randn_like(graphs.embedded))
    hidden = graphs.replay(batch)["hidden"].view(3, WIDTH, -1)
    wanted = (hidden[:, 1:] @ head.weight[:WORDS].T).argmax(-1).flatten()
    assert graphs.words.words[: wanted.numel()].equal(wanted) and wanted.unique().numel() > 1


def _found(comm: Communicator) -> list[int]:
    torch.manual_seed(5)
    rows, table = torch.randn(2 * WIDTH, 64), torch.randn(WORDS, 64)
    head = VocabTable("head", make_qwen(), comm, "tp", torch.float32, torch.device("cpu"))
    head.weight.copy_(table[head.rows])
    words = BlockWords(head, comm, 5, WIDTH)
    words(rows)
    wanted = (rows.view(2, WIDTH, -1)[:, 1:] @ table.T).argmax(-1).flatten()
    return [*(words.words[: wanted.numel()] - wanted)]


def test_ranks_find_them_together(ranks: Ranks) -> None:
    assert all(not any(off) for off in ranks.run(TP2, _found))


@pytest.mark.parametrize(
    ("version", "tp", "is_captured"),
    [("0.5.14", 1, False), ("0.5.15", 1, True), ("0.5.15", 2, False), ("0.5.16", 2, True)],
)
def test_words_are_captured_since_a_release(version: str, tp: int, is_captured: bool) -> None:
    graphs = _graphs(_runner(make_meta(), version, ParallelConfig(tp=tp)))
    assert (graphs.words is not None) == is_captured


@pytest.mark.parametrize(("free", "captured"), [(3 << 30, True), (1 << 29, False)])
def test_without_a_gibibyte_there_are_none(free: int, captured: bool) -> None:
    runner = _runner(make_meta(free), as_sglang=True)
    assert (runner.draft_runners is not None) == captured


@pytest.mark.parametrize("as_sglang", [False, True])
def test_each_graph_of_sglangs_keeps_the_rows_that_it_gives(as_sglang: bool) -> None:
    """And those of a start of our own are copied into one place."""
    runner = _runner(make_meta(), as_sglang=as_sglang)
    assert runner.decode_graphs is not None
    for one, width in ((runner.decode_graphs, 2 * 64), (_graphs(runner), 64)):
        given = [graph.outputs["hidden"] for graph in one.graphs.values()]
        bases = [None if rows._base is None else id(rows._base) for rows in given]
        assert {rows.shape[1] for rows in given} == {width}
        assert ("hidden" in one.outputs) != as_sglang
        assert set(bases) == ({None} if as_sglang else {id(one.outputs["hidden"])})


@pytest.mark.parametrize(
    ("version", "draft", "rows"),
    [
        ("0.5.13", (32, 320), 32),
        ("0.5.14", (32, 320), 0),
        ("0.5.23", (32, 320), 0),
        ("0.5.13", (8, 320), 0),
        ("0.5.14", (8, 320), 8),
        ("0.5.15", (8, 320), 0),
        ("0.5.13", (32, 128), 0),
        ("0.5.14", (32, 128), 32),
        ("0.5.15", (8, 128), 32),
    ],
)
def test_logits_of_a_draft_are_apart_from_its_targets(
    version: str, draft: tuple[int, int], rows: int
) -> None:
    """Once where a target has fewer or as many; then where they are not as many, or not of as many words."""
    release = release_named(version).release
    assert rows_apart(release, (32, 320), draft) == rows
    there = torch.zeros(32, 320)
    found = logits_of_draft(Places(logits=there), release, *draft, there.device)
    assert (found.untyped_storage().data_ptr() == there.untyped_storage().data_ptr()) == (rows == 0)
    assert found.shape == (rows or draft[0], draft[1])

"""What choosing blocks takes at a start of MiniMax-M3: which kernels are timed, and what no report counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime.server.block_timings import prefill_timings, timings
from runtime.server.checkpoint import Checkpoint
from runtime.server.decoders.known import model_config
from runtime.server.releases import release_named
from runtime.server.uncounted import uncounted_choices
from tests.memory.checkpoints import DATA
from tests.runtime.starts import make_preset
from tests.server.asking import server

PUBLISHED = json.loads((DATA / "published_families.json").read_text())["MiniMaxAI/MiniMax-M3"]
M3 = model_config(PUBLISHED)


@pytest.mark.parametrize(
    ("release", "major", "page", "width", "timed"),
    [
        ("0.5.16", 9, 128, 1, {1, 2, 4, 8}),
        ("0.5.22", 9, 128, 1, {1, 2, 4, 8}),
        ("0.5.23", 9, 128, 1, set()),
        ("0.5.23", 9, 256, 1, set()),
        ("0.5.23", 9, 64, 1, {1, 2, 4, 8}),
        ("0.5.23", 10, 128, 1, {1, 2, 4, 8}),
        ("0.5.23", 9, 128, 4, {0}),
    ],
)
def test_decodes_are_timed_by_powers_of_two(
    release: str, major: int, page: int, width: int, timed: set[int]
) -> None:
    assert timings(M3, release_named(release).release, major, page, (1, 2, 3, 4, 7, 8), width) == timed


def test_models_without_such_blocks_time_nothing() -> None:
    model = make_preset("Qwen3-30B-A3B")
    assert not timings(model, release_named("0.5.22").release, 9, 1, (1,), 1) and not prefill_timings(model)
    assert not list(uncounted_choices(server("qwen3_moe"), model))


@pytest.mark.parametrize(
    ("asked", "mib"),
    [
        ({"tp_size": 8, "chunked_prefill_size": 8192}, 256),
        ({"tp_size": 2, "chunked_prefill_size": 8192}, 512),
        ({"tp_size": 8, "chunked_prefill_size": 8192, "context_length": 131072}, 32),
        ({"tp_size": 8, "chunked_prefill_size": -1, "context_length": 131072}, 512),
    ],
)
def test_what_a_long_prompt_takes_is_told(asked: dict[str, Any], mib: int) -> None:
    """flash_prefill_with_topk_index: four bytes of a head of the indexer, a token and a block of 128."""
    checkpoint = Checkpoint({**PUBLISHED, "dtype": "bfloat16"})
    for gpu, more in (("H200", []), ("B200", ["what fmha_sm100 takes where that is installed"])):
        told = list(uncounted_choices(server(checkpoint, gpu=gpu, **asked), M3))
        assert told == [f"scores of blocks at the end of the longest prompt ({mib} MiB)", *more]

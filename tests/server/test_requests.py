"""Requests of a rank, rows of the dummy batch and the context length."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.gpus import find_gpu
from runtime.server.releases import NEWEST, RELEASES
from runtime.server.requests import max_running_requests
from runtime.server.resolve import resolve
from tests.server.servers import LLAMA, VERSIONS, changed_in, checkpoint, server

DP = {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}


@pytest.mark.parametrize(
    ("flags", "rows"),
    [
        ({}, {"12": 4096}),
        (DP, {"12": 4096}),
        ({"max_running_requests": 100}, {"12": 100}),
        ({**DP, "max_running_requests": 100}, {"12": 12}),
        ({**DP, "max_running_requests": 7}, {"12": 0, "23": 1}),
        ({"tp_size": 8, "dp_size": 8, "max_running_requests": 100}, {"12": 100}),
        ({"max_running_requests": 9000}, {"12": 4096, "14": 9000}),
        ({"speculative_algorithm": "NGRAM", "speculative_ngram_max_bfs_breadth": 1}, {"12": 576}),
    ],
)
def test_rows_of_the_dummy_batch(flags: dict[str, Any], rows: dict[str, int]) -> None:
    assert (
        changed_in([server(LLAMA, version=version, **flags).dummy_batch_rows for version in VERSIONS]) == rows
    )


@pytest.mark.parametrize(
    ("tokens", "context", "asked", "requests"),
    [
        (669939, 40960, None, 4096),
        (669939, 202752, None, 2048),
        (1000000, 202752, None, 2525),
        (3000, 40960, None, 1500),
        (100, 40960, 4096, 50),
    ],
)
def test_requests_follow_the_memory(tokens: int, context: int, asked: int | None, requests: int) -> None:
    assert max_running_requests(tokens, context, asked, 1, NEWEST) == requests


def test_before_0_5_14_a_limit_was_no_higher_than_the_context_allowed() -> None:
    assert max_running_requests(669939, 202752, 3000, 1, RELEASES[1]) == 2048
    assert max_running_requests(669939, 202752, 3000, 1, RELEASES[2]) == 3000
    assert max_running_requests(669939, 202752, 3, 8, NEWEST) == 1


def test_deepseek_v4_runs_256_requests_unless_told() -> None:
    v4 = checkpoint("DeepseekV4ForCausalLM", "deepseek_v4")
    assert [server(v4, version=version).max_running_requests for version in VERSIONS] == [256] * len(VERSIONS)
    assert server(v4, max_running_requests=7).max_running_requests == 7


@pytest.mark.parametrize(
    ("members", "length"),
    [
        ({}, 32768),
        ({"max_position_embeddings": None}, 2048),
        ({"model_max_length": 500, "seq_length": 700}, 700),
        ({"max_sequence_length": 9, "seq_length": 700}, 9),
        ({"max_seq_len": 9, "model_max_length": 700}, 9),
        ({"rope_scaling": {"factor": 4.0}}, 131072),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 1.5}}, 49152),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, 32768),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, 32768),
        ({"rope_scaling": {"type": "longrope", "factor": 4}}, 32768),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, 65536),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, 32768),
        ({"rope_scaling": {"factor": 8, "original_max_position_embeddings": 4096}}, 32768),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2}}, 65536),
        ({"rope_scaling": None, "rope_parameters": {"rope_theta": 5}}, 32768),
        ({"text_config": {"max_position_embeddings": 77}}, 77),
    ],
)
def test_the_models_context(members: dict[str, Any], length: int) -> None:
    assert server({**LLAMA, **members}).context_length == length


def test_a_longer_context_than_the_models_needs_leave() -> None:
    assert server(LLAMA, context_length=32768).context_length == 32768
    with pytest.raises(ConfigError, match="--context-length 32769"):
        server(LLAMA, context_length=32769)
    leave = {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}
    asked = Asked(model_path="m", context_length=32769)
    longer = resolve(asked, Checkpoint(LLAMA), None, find_gpu("H200"), NEWEST, leave)
    assert longer.context_length == 32769


@pytest.mark.parametrize("value", ["4096", 0, -1, 2.5, True, [4096], {"a": 1}, float("nan"), 1 << 62])
def test_a_context_of_no_length(value: object) -> None:
    with pytest.raises(ConfigError, match=r"max_position_embeddings|context length"):
        server({**LLAMA, "max_position_embeddings": value})


@pytest.mark.parametrize("value", ["8", 0, -2, True, [8], float("nan"), float("inf"), None])
def test_a_factor_that_stretches_nothing(value: object) -> None:
    with pytest.raises(ConfigError, match="rope_scaling has factor"):
        server({**LLAMA, "rope_scaling": {"factor": value}})


@pytest.mark.parametrize("value", ["yarn", 3, [1]])
def test_a_scaling_that_is_no_object(value: object) -> None:
    with pytest.raises(ConfigError, match="rope_scaling is"):
        server({**LLAMA, "rope_scaling": value})

"""How much room a rank's all-to-all needs: the least that its variable may say, by SGLang's own sums."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.checks import budgets
from runtime.server.errors import ConfigError
from runtime.server.gpus import find_gpu
from runtime.server.releases import release_named
from runtime.server.resolve import resolve
from runtime.server.shape import Server
from tests.server.asking import FP8, NVFP4, model

_GROUPS: dict[str, Any] = {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}
_SENT = {**_GROUPS, "moe_a2a_backend": "flashinfer", "moe_runner_backend": "flashinfer_cutlass"}
_CHUNK = {"chunked_prefill_size": 4096, "cuda_graph_max_bs": 64}
_EAGER = {"disable_prefill_cuda_graph": True}
_DECODE, _PREFILL = ({"disaggregation_mode": role} for role in ("decode", "prefill"))
_CHAIN: dict[str, Any] = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3,
                          "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}  # fmt: skip
_PAIR: dict[str, Any] = {"dp_size": 2, "enable_dp_attention": True}
_DEEPEP = {"tp_size": 8, "moe_a2a_backend": "deepep_v2", "chunked_prefill_size": 1000,
           "cuda_graph_max_bs": 100}  # fmt: skip
_MEGA = {"tp_size": 8, "moe_a2a_backend": "megamoe", "chunked_prefill_size": 1024, "cuda_graph_max_bs": 100}
_PPLX = {**_DEEPEP, **_PAIR, "tp_size": 4, "moe_a2a_backend": "pplx"}
_MORI = {"tp_size": 4, "moe_a2a_backend": "mori", "chunked_prefill_size": 1000}
_R1, _V4 = model("deepseek", FP8), model("deepseek_v4")


def _server(
    variable: str, room: object, checkpoint: Checkpoint, version: int, gpu: str, **asked: Any
) -> Server:
    given = Asked(**{"model_path": "org/model", **asked})
    release = release_named(f"0.5.{version}").release
    return resolve(given, checkpoint, None, find_gpu(gpu), release, {variable: str(room)})


@pytest.mark.parametrize(
    ("asked", "room"),
    [
        (_CHUNK, 1024),  # a fourth of the chunk
        ({**_CHUNK, **_EAGER, "chunked_prefill_size": 8192}, 2048),
        ({**_CHUNK, **_DECODE}, 64),
        ({**_CHUNK, **_DECODE, "max_running_requests": 40}, 10),
        ({**_CHUNK, **_DECODE, "max_running_requests": 8}, 2),
        ({**_CHUNK, **_DECODE, **_CHAIN}, 12 * 4),
        ({**_EAGER, "chunked_prefill_size": 64, "cuda_graph_max_bs": 64}, 64),
        ({**_EAGER, **_PREFILL, "chunked_prefill_size": 64, "cuda_graph_max_bs": 64}, 16),
        ({**_EAGER, "chunked_prefill_size": 64, "disable_decode_cuda_graph": True}, 16),
    ],
)
def test_flashinfers_holds_the_largest_forward_of_a_rank(asked: dict[str, Any], room: int) -> None:
    _needs(room, budgets.FLASHINFER, model("qwen3_moe"), 23, "H200", {**_SENT, **asked})


@pytest.mark.parametrize(
    ("version", "asked", "room"),
    [
        (19, {}, 1000),
        (20, _PAIR, 500),
        (20, {"chunked_prefill_size": -1, "max_prefill_tokens": 5000}, 5000),
        (20, {**_DECODE, "cuda_graph_max_bs": 300}, 300),
        (21, {}, 125),
        (23, _PAIR, 125),
        (23, {"tp_size": 8, "chunked_prefill_size": 1001}, 126),
        (23, {"chunked_prefill_size": -1, "max_prefill_tokens": 5000}, 625),
        (23, {**_DECODE, "cuda_graph_max_bs": 300}, 300),
        (23, {**_PREFILL, "cuda_graph_max_bs": 300}, 125),
    ],
)
def test_deepeps_second_holds_a_prefill_and_a_decode_graph(
    version: int, asked: dict[str, Any], room: int
) -> None:
    _needs(room, budgets.DEEPEP_2, _R1, version, "H200", {**_DEEPEP, **asked})


@pytest.mark.parametrize(
    ("checkpoint", "version", "asked", "room"),
    [
        (_V4, 17, {}, 1024),
        (_V4, 21, {**_DECODE, "cuda_graph_max_bs": 300}, 256),
        (model("qwen3_moe", FP8), 21, {**_DECODE, "cuda_graph_max_bs": 300}, 300),
        (_R1, 23, {**_DECODE, "cuda_graph_max_bs": 300}, None),
        (model("deepseek", NVFP4), 23, {**_DECODE, "cuda_graph_max_bs": 300}, 300),
        (_V4, 23, {**_DECODE, "cuda_graph_max_bs": 300, "max_running_requests": 100}, 104),
        (_V4, 23, {**_DECODE, "cuda_graph_max_bs": 300, "max_running_requests": 100, **_PAIR}, 52),
        (_V4, 23, {**_DECODE, **_CHAIN, "max_running_requests": 16}, 64),
        (_V4, 23, _PREFILL, 1024),
        (_V4, 23, {**_PREFILL, **_PAIR, "chunked_prefill_size": 1024}, 256),
        (_V4, 23, {"cuda_graph_max_bs": 200, "max_running_requests": 4000}, 1024),
    ],
)
def test_the_mega_kernel_holds_a_chunk_and_a_decode_step(
    checkpoint: Checkpoint, version: int, asked: dict[str, Any], room: int | None
) -> None:
    _needs(room, budgets.MEGAMOE, checkpoint, version, "B200", {**_MEGA, **asked})


@pytest.mark.parametrize(
    ("asked", "room"),
    [({}, 500), (_DECODE, None), ({"cuda_graph_max_bs": 700}, 700), ({"chunked_prefill_size": -1}, None)],
)
def test_pplx_holds_a_chunk_or_a_graph(asked: dict[str, Any], room: int | None) -> None:
    _needs(room, budgets.PPLX, _R1, 23, "H200", {**_PPLX, **asked})


@pytest.mark.parametrize(
    ("asked", "room"), [({}, 1000), (_DECODE, None), ({"chunked_prefill_size": -1}, None)]
)
def test_mori_holds_a_chunk(asked: dict[str, Any], room: int | None) -> None:
    _needs(room, budgets.MORI, model("qwen3_moe"), 23, "H200", {**_MORI, **asked})


def test_a_variable_that_is_no_number_is_none() -> None:
    told = (budgets.MORI, "many", model("qwen3_moe"), 23, "H200")
    assert _server(*told, **_MORI).ep_size == 4
    with pytest.raises(ConfigError, match=budgets.MORI):
        _server(*told, **{**_MORI, "chunked_prefill_size": 4097})


@pytest.mark.parametrize(("version", "tokens"), [(12, 5000 * 4), (13, 5000)])
def test_flashinfers_room_was_told_by_ranks_at_first(version: int, tokens: int) -> None:
    found = _server(budgets.FLASHINFER, 5000, model("qwen3_moe"), version, "H200", **_SENT, **_CHUNK)
    assert found.dispatch_tokens == tokens


def test_others_have_no_such_room() -> None:
    found = _server(budgets.FLASHINFER, 5000, model("qwen3_moe"), 23, "H200", tp_size=4)
    assert found.dispatch_tokens is None


def _needs(
    room: int | None, variable: str, checkpoint: Checkpoint, version: int, gpu: str, asked: dict[str, Any]
) -> None:
    """None where nothing is asked of it."""
    assert _server(variable, room or 0, checkpoint, version, gpu, **asked).key
    if room:
        with pytest.raises(ConfigError, match=variable):
            _server(variable, room - 1, checkpoint, version, gpu, **asked)

"""How many rows a server's kernels see, and the sizes that its start goes by."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.config import RuntimeConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.rows import Seen, aligned_rows, batch_rows
from runtime.server.speculative_config import SpeculativeConfig
from runtime.server.start_sizes import captured_sizes
from tests.server.servers import H200, QWEN, R1, server

_GROUPS: dict[str, Any] = {"tp_size": 8, "dp_size": 2, "enable_dp_attention": True}
_CHAIN: dict[str, Any] = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3,
                          "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "tuning", "prefill"),
    [
        ({}, 4096, 8192),
        ({"max_running_requests": 10, "chunked_prefill_size": 2048}, 10, 2048),
        ({"chunked_prefill_size": -1, "max_prefill_tokens": 5000}, 4096, 5000),
        ({**_GROUPS, "max_running_requests": 22, "chunked_prefill_size": 4096}, 24, 4096),
        ({**_GROUPS, **_CHAIN, "max_running_requests": 22, "chunked_prefill_size": 4096}, 24 * 4, 4096),
        ({"disaggregation_mode": "decode", "max_running_requests": 10}, 10, 0),
    ],
)
def test_all_groups_rows_are_gathered(flags: dict[str, Any], tuning: int, prefill: int) -> None:
    rows = batch_rows(server(R1, H200, **flags))
    assert (rows.tuning, rows.prefill, rows.serving) == (tuning, prefill, max(tuning, prefill))


def test_a_layer_sees_rows_by_where_it_lies() -> None:
    """Two groups of four ranks, each with 12 requests of four tokens."""
    asked = server(R1, H200, **_GROUPS, **_CHAIN, max_running_requests=22, chunked_prefill_size=4096)
    seen: tuple[Seen, ...] = ("gathered", "own", "scattered", "own, decoded")
    found = [(rows.tuning, rows.prefill) for rows in (batch_rows(asked, one) for one in seen)]
    assert found == [(96, 4096), (48, 2048), (12, 512), (48, 2048)]


@pytest.mark.parametrize(
    ("requests", "parallel", "rows"),
    [
        (11, ParallelConfig(tp=8, dp=2, enable_dp_attention=True), 12 * 3),
        (12, ParallelConfig(tp=8, dp=2, enable_dp_attention=True), 12 * 3),
        (11, ParallelConfig(tp=8), 11 * 3),
    ],
)
def test_ranks_of_a_group_share_rows_evenly(requests: int, parallel: ParallelConfig, rows: int) -> None:
    assert aligned_rows(requests, 3, parallel) == rows


@pytest.mark.parametrize(
    ("requests", "parallel", "width", "sizes"),
    [
        (6, ParallelConfig(tp=4), 1, (1, 2, 4, 6)),
        (8, ParallelConfig(tp=4), 1, (1, 2, 4, 8)),
        (99, ParallelConfig(tp=4), 1, (1, 2, 4, 8)),
        (6, ParallelConfig(tp=8, dp=2, enable_dp_attention=True), 1, (4, 8)),
        (6, ParallelConfig(tp=8, dp=2, enable_dp_attention=True), 2, (2, 4, 8)),
        (3, ParallelConfig(tp=8, dp=2, enable_dp_attention=True), 1, (4,)),
    ],
)
def test_graphs_are_of_the_requests_that_run(
    requests: int, parallel: ParallelConfig, width: int, sizes: tuple[int, ...]
) -> None:
    draft = SpeculativeConfig("EAGLE", num_draft_tokens=width) if width > 1 else None
    runtime = RuntimeConfig(decode_graphs=(1, 2, 4, 8), speculative=draft)
    assert captured_sizes(requests, parallel, runtime) == sizes
    assert captured_sizes(requests, parallel, RuntimeConfig()) == ()


def test_a_rank_goes_by_its_server() -> None:
    found = server(QWEN, H200, page_size=16, kv_cache_dtype="bf16", max_running_requests=12, **_CHAIN)
    runtime = found.runtime
    by = {"steps_by": "flashinfer", "catches_up_by": "flashinfer"}
    assert runtime.speculative == SpeculativeConfig("EAGLE", 3, 1, 4, is_counted=False, **by)
    assert (runtime.page_size, runtime.kv_cache_dtype) == (16, "bfloat16")
    assert (runtime.max_running_requests, runtime.prefill_tokens) == (12, 8192)
    assert (runtime.decode_graphs, runtime.prefill_graphs) == (found.decode_graphs, found.prefill_graphs)
    assert (runtime.context_length, runtime.mem_fraction_static) == (32768, found.mem_fraction_static)
    assert (runtime.attention_backend, runtime.sglang_version) == ("flashinfer", "0.5.23")
    assert (runtime.is_pd_decode, runtime.disable_autotune) == (False, not found.tunes)


# As SGLang's own function has them, 0.5.12 to 0.5.23.
@pytest.mark.parametrize(
    ("requests", "tp", "changes", "width", "sizes"),
    [
        (5, 2, {"two_batches": True}, 1, (2, 4, 6)),
        (5, 2, {"two_batches": True}, 2, (2, 4, 6)),
        (5, 2, {"two_batches": True, "moe_a2a_backend": "deepep"}, 2, (4, 8)),
        (5, 4, {"tells_dense_split": True}, 1, (4, 8)),
        (5, 4, {"tells_dense_split": True}, 2, (2, 4, 8)),
        (3, 4, {"moe_a2a_backend": "deepep"}, 1, (4,)),
    ],
)
def test_graphs_are_of_sizes_that_can_be_shared(
    requests: int, tp: int, changes: dict[str, Any], width: int, sizes: tuple[int, ...]
) -> None:
    draft = SpeculativeConfig("EAGLE", num_draft_tokens=width) if width > 1 else None
    runtime = RuntimeConfig(decode_graphs=(1, 2, 4, 8, 12), speculative=draft, **changes)
    assert captured_sizes(requests, ParallelConfig(tp=tp), runtime) == sizes


def test_graphs_of_drafts_are_of_sizes_that_can_be_shared_as_requests() -> None:
    """srt/speculative's runners do not say how many rows a request has."""
    runtime = RuntimeConfig(decode_graphs=(1, 2, 4, 8), speculative=SpeculativeConfig("EAGLE"))
    parallel = ParallelConfig(tp=8, dp=2, enable_dp_attention=True)
    assert captured_sizes(6, parallel, runtime) == (1, 2, 4, 8)
    assert captured_sizes(6, parallel, runtime, drafts=True) == (4, 8)

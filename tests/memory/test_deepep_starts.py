"""Whole starts behind DeepEP: its buffers come with the first forward, and each phase has what it should."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import comb
from typing import Any

import pytest

from runtime.server.units import MIB
from runtime.start.run_record import Phase
from sgl_tune.memory.predict import predict
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.start import Start
from tests.memory.starts import make_start

RANKS, TOKENS = 8, 128


def _few_layers(start: Start) -> Start:
    """Of every kind one: what a layer takes is given back before the next."""
    model = start.model
    first = model.layer_kinds.index("moe")
    kept = min(model.num_layers, first + 1)
    few = replace(
        model,
        num_layers=kept,
        layer_kinds=model.layer_kinds[:kept],
        attention_kinds=model.attention_kinds[:kept],
    )
    return replace(start, model=few)


@cache
def _report(model: str, mode: str = "auto", **flags: Any) -> MemoryReport:
    asked: dict[str, Any] = {"tp": RANKS, "dp": RANKS, "enable_dp_attention": True, "gpu": "h200"}
    asked |= {"moe_a2a_backend": "deepep", "cuda_graph_max_bs": 8, "mem_fraction_static": 0.8}
    start = make_start(model_path=model, **{**asked, **flags})
    return predict(_few_layers(start.asking(deepep_mode=mode)))


def _phase(report: MemoryReport, name: str) -> Phase:
    phase = report.phase(name)
    assert phase is not None
    return phase


def _shapes(phase: Phase, file: str) -> list[str]:
    return [held.what for held in phase.largest if held.where.startswith(file)]


@pytest.mark.parametrize(
    ("model", "flags", "hidden", "experts", "inner", "row"),
    [
        ("DeepSeek-V3", {}, 7168, 256, 2048, "float8_e4m3fn"),
        ("GLM-5.1-FP8", {}, 6144, 256, 2048, "float8_e4m3fn"),
        ("Qwen3-235B-A22B", {"quantization": "fp8"}, 4096, 128, 1536, "float8_e4m3fn"),
        ("Qwen3-235B-A22B", {"moe_runner_backend": "deep_gemm"}, 4096, 128, 1536, "bfloat16"),
    ],
)
def test_a_decode_has_room_for_all_ranks_at_all_experts(
    model: str, flags: dict[str, str], hidden: int, experts: int, inner: int, row: str
) -> None:
    report = _report(model, **flags)
    local, room = experts // RANKS, RANKS * TOKENS
    decode = _phase(report, "decode graphs")
    assert f"new_empty [{local}, {room}, {hidden}] {row}" in _shapes(decode, "moe/deepep.py")
    experts_own = _shapes(decode, "moe/deep_gemm.py")
    assert f"new_empty [{local}, {room}, {hidden}] bfloat16" in experts_own
    assert f"new_empty [{local}, {room}, {inner}] {row}" in experts_own
    width = 2 if row == "bfloat16" else 1
    assert decode.transient_bytes >= local * room * (hidden * (width + 2) + inner * width)


def test_the_buffers_come_with_the_first_forward_and_after_the_pool() -> None:
    report = _report("DeepSeek-V3")
    told = {constant.name: constant for constant in report.constants if "DeepEP" in constant.name}
    sizes = {name.removeprefix("DeepEP's "): constant.bytes // MIB for name, constant in told.items()}
    assert sizes == {"NVLink buffer": 322, "NVSHMEM heap": 2560, "workspace": 32}
    outside = [phase.non_torch_bytes for phase in report.phases]
    names = [phase.name for phase in report.phases]
    first = names.index("prefill graphs")
    grown = outside[first] - outside[first - 1]
    assert grown >= 2914 * MIB > outside[first - 1] - outside[0], "not before"


def test_what_is_doubtful_of_nvshmem_is_in_the_margin() -> None:
    with_it, without = _report("DeepSeek-V3"), _report("DeepSeek-V3", moe_a2a_backend="none")
    grown = with_it.margin_bytes - without.margin_bytes
    assert 630 * MIB < grown < 650 * MIB


def test_prefills_take_the_rows_that_came_and_their_copies() -> None:
    """A chunk of 1024 tokens from each of eight ranks, eight experts each."""
    prefill = _phase(_report("Qwen3-235B-A22B", quantization="fp8"), "prefill graphs")
    came, copies = round(8 * 1024 * (1 - comb(112, 8) / comb(128, 8))), 1024 * 8
    assert f"new_empty [{came}, 4096] float8_e4m3fn" in _shapes(prefill, "moe/deepep.py")
    assert f"new_empty [{copies}, 4096] bfloat16" in _shapes(prefill, "moe/deep_gemm.py")


def test_without_graphs_the_first_request_takes_the_buffers() -> None:
    report = _report("DeepSeek-V3", "normal")
    ready, before = report.phases[-1], report.phases[-2]
    assert (ready.name, report.sizes.decode_graphs) == ("ready", ())
    assert ready.non_torch_bytes - before.non_torch_bytes == (322 + 32) * MIB, "of one node: NVLink alone"


def test_more_tokens_than_a_dispatch_takes_are_told() -> None:
    report = _report("DeepSeek-V3", cuda_graph_max_bs=256)
    assert report.verdict == "failed" and report.failure is not None
    assert report.failure.phase == "decode graphs"
    assert "256 tokens a rank do not fit DeepEP's dispatch with low latency" in report.failure.error


def test_deep_gemm_without_an_all_to_all_is_predicted_too() -> None:
    report = _report(
        "Qwen3-235B-A22B", moe_a2a_backend="none", moe_runner_backend="deep_gemm", quantization="fp8"
    )
    assert _shapes(_phase(report, "decode graphs"), "moe/deep_gemm.py")

"""Whole starts predicted: public failures and a stock start must come out, from nothing but flags."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from runtime.server.units import GIB, MIB
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.memory.advice import remedies
from sgl_tune.memory.predict import Predictor, predict, settled, together
from sgl_tune.memory.report import MemoryReport, worst
from tests.memory.starts import DEMO, GLM, GLM_DP, make_start, make_starts, of_size
from tests.warm.processes import children_of, command_of, until

GLM_AIR = str(Path(__file__).parents[2] / "benchmarks/real_starts/models/glm-air-12l")
STOCK = json.loads((Path(__file__).parent / "data" / "sglang-0.5.17-qwen3-30b-start.json").read_text())


@pytest.fixture(scope="module")
def head_run() -> MemoryReport:
    return predict(make_start("lm-head-in-autotune", **GLM_DP))


class TestGlmOnB200:
    """sgl-project/sglang#23796: tried 6.38 GiB, 2.98 GiB free, 170.11 GiB allocated."""

    def test_the_public_failure_comes_out(self, head_run: MemoryReport) -> None:
        assert head_run.verdict == "oom" and head_run.run.failed_in == "autotune"
        assert head_run.oom is not None
        assert head_run.oom.tried_bytes == pytest.approx(6.38 * GIB, rel=0.03)
        assert head_run.oom.allocated_bytes == pytest.approx(170.11 * GIB, rel=0.01)
        assert head_run.oom.free_bytes < head_run.oom.tried_bytes
        assert (
            head_run.oom.where.startswith("forward/logits_processor.py")
            and "_gather_vocab" in head_run.oom.where
        )

    def test_its_rows_follow_from_the_kv_pool(self, head_run: MemoryReport) -> None:
        sizes = head_run.sizes
        assert sizes.kv_tokens is not None and sizes.context_length is not None
        assert sizes.max_running_requests == int(sizes.kv_tokens / sizes.context_length * 512)
        assert sizes.dummy_batch_rows == sizes.max_running_requests > 2048
        gathered = sizes.dummy_batch_rows * 8 * 154880 * 2
        assert head_run.phases[-1].largest[0].bytes == gathered

    def test_it_fits_without_the_head(self) -> None:
        assert predict(make_start(**GLM_DP)).verdict == "fits"

    def test_it_fits_without_dp_even_with_the_head(self) -> None:
        assert predict(make_start("lm-head-in-autotune", **GLM)).verdict == "fits"

    def test_with_a_draft_the_gathered_logits_are_57_mib(self) -> None:
        report = predict(make_start("lm-head-in-autotune", speculative_algorithm="EAGLE", **GLM_DP))
        assert report.verdict == "fits" and report.sizes.max_running_requests == 6
        tuned = report.phase("autotune")
        assert tuned is not None
        gathered = [held for held in tuned.largest if "_gather_vocab" in held.where]
        assert [round(held.bytes / MIB) for held in gathered] == [57, 57]
        assert {"draft weights", "draft graphs"} <= {phase.name for phase in report.phases}


@pytest.fixture(scope="module")
def stock_start() -> MemoryReport:
    start = make_start(
        model_path="Qwen/Qwen3-30B-A3B",
        gpu="h200",
        moe_runner_backend="flashinfer_cutlass",
        attention_backend="triton",
        mem_fraction_static=0.85,
        context_length=40960,
        cuda_graph_max_bs=256,
        sglang_version="0.5.17",
    )
    return predict(start.with_everything_cached())


class TestStockStart:
    """Qwen3-30B-A3B under SGLang 0.5.17 on an H200: its tactics were cached, so nothing was profiled."""

    @pytest.mark.parametrize(
        ("phase", "step"),
        [
            ("weights", "load_model"),
            ("kv pool", "alloc_memory_pool"),
            ("attention backend", "init_attention_backends"),
            ("ready", "init_cuda_graphs"),
        ],
    )
    def test_each_step(self, stock_start: MemoryReport, phase: str, step: str) -> None:
        predicted, real = stock_start.phase(phase), STOCK["after"][step]
        assert predicted is not None
        assert predicted.allocated_bytes == pytest.approx(real["alloc"], abs=128 * MIB)
        outside = real["total"] - real["free"] - real["reserved"]
        assert predicted.non_torch_bytes == pytest.approx(outside, abs=128 * MIB)

    def test_the_pool_and_the_peak(self, stock_start: MemoryReport) -> None:
        assert stock_start.sizes.kv_tokens == pytest.approx(STOCK["kv_tokens"], rel=0.001)
        assert stock_start.sizes.max_running_requests == STOCK["max_running_requests"]
        last = STOCK["after"]["init_cuda_graphs"]
        assert max(phase.peak_bytes for phase in stock_start.phases) == pytest.approx(
            last["peak"], abs=128 * MIB
        )
        reserved = max(phase.reserved_peak_bytes for phase in stock_start.phases)
        assert reserved == pytest.approx(last["rpeak"], rel=0.03)


def test_stages_are_predicted_apart_and_the_tightest_leads() -> None:
    starts = make_starts(pp=2, **DEMO)
    assert [start.rank_name for start in starts] == ["PP0 TP0", "PP1 TP0"]
    with Predictor() as predict_all:
        first, last = predict_all(starts)
    assert worst([first, last]).free_at_peak_bytes == min(r.free_at_peak_bytes for r in (first, last))
    assert [report.rank for report in (first, last)] == [0, 1]


def test_a_stage_has_no_more_tokens_than_the_one_with_the_fewest() -> None:
    """The least that each would have alone is what SGLang agrees on, over all its ranks."""
    starts = make_starts(pp=3, model_path="Llama-3.1-8B", gpu="l4", disable_cuda_graph=True)
    alone = [predict(start) for start in starts]
    tokens = [report.sizes.kv_tokens for report in alone]
    assert len(set(tokens)) > 1
    settled_ones = settled(starts, alone, lambda again: [*map(predict, again)])
    assert {report.sizes.kv_tokens for report in settled_ones} == {min(filter(None, tokens))}
    for before, after in zip(alone, settled_ones, strict=True):
        assert after.rank == before.rank and after.free_at_peak_bytes >= before.free_at_peak_bytes


def test_a_stage_that_dies_of_its_own_pool_gets_what_the_others_have_room_for() -> None:
    """SGLang agrees on the tokens before any stage makes its pool."""
    flags = {"model_path": "Llama-3.1-8B", "gpu": "l4", "disable_cuda_graph": True}
    starts = make_starts(pp=3, mem_fraction_static=0.967, **flags)
    alone = [predict(start) for start in starts]
    assert "kv pool" in {report.run.failed_in for report in alone}
    tokens = {report.sizes.kv_tokens for report in together([starts], lambda few: [*map(predict, few)])[0]}
    assert tokens == {min(report.sizes.kv_tokens or 0 for report in alone)} != {0}


def test_a_remedy_is_of_all_stages() -> None:
    """With the tokens of the stage that has the fewest, not of the one that leads."""
    flags = {"model_path": "Llama-3.1-8B", "gpu": "l4", "disable_cuda_graph": True}
    starts = make_starts(pp=3, mem_fraction_static=0.95, **flags)
    lead = worst([predict(start) for start in starts])
    assert lead.verdict == "oom"
    first, *_ = remedies(starts, lead, lambda few: [*map(predict, few)])
    assert first.flags.startswith("--mem-fraction-static")
    again = [start.asking(mem_fraction_static=float(first.flags.split()[1])) for start in starts]
    tokens = {start.rank: predict(start).sizes.kv_tokens for start in again}
    assert first.kv_tokens == min(filter(None, tokens.values())) < max(filter(None, tokens.values()))


def test_what_one_start_is_refused_for_is_nobody_elses_answer() -> None:
    """The processes that predict are asked again right after."""
    small = {"model_path": "Llama-3.1-8B", "gpu": "h200", "disable_cuda_graph": True}
    fine, others = make_start(tp=2, **small), make_start(tp=4, **small)
    odd = make_start(model_path=GLM_AIR, gpu="h200", tp=64)
    with Predictor() as predict_all:
        with pytest.raises(UsageError, match="heads 96 cannot be split over 64"):
            predict_all([odd, fine, fine])
        found = [report.subtitle for report in predict_all([others, fine])]
    assert [told.partition(",")[0] for told in found] == ["tp 4", "tp 2"]


def test_a_remedy_that_cannot_be_laid_out_is_passed_over() -> None:
    """96 heads over 64 GPUs."""
    start = make_start(model_path=GLM_AIR, gpu="l4")
    lead = predict(start)
    assert lead.run.failed_in == "weights"
    found = remedies([start], lead, lambda few: [*map(predict, few)])
    assert all("64" not in remedy.flags for remedy in found)


def test_a_prefill_graph_may_hold_many_short_contexts() -> None:
    """More than the eight requests that a captured prefill has otherwise."""
    small = {"context_length": 64, "chunked_prefill_size": 1024, "cuda_graph_max_bs": 8}
    report = predict(make_start(model_path="Llama-3.1-8B", gpu="h200", **small))
    assert report.verdict == "fits" and max(report.sizes.prefill_graphs) > 8 * 64


def test_a_workspace_for_requests_alone_overflows_at_a_chunk() -> None:
    flags = {**DEMO, "tp": 8, "dp": 8, "ep": 8, "max_running_requests": 64, "chunked_prefill_size": 8192}
    flags |= {"moe_runner_backend": "flashinfer_cutlass", "moe_a2a_backend": "flashinfer"}
    report = predict(make_start("dispatcher-by-max-running-requests", **flags))
    assert report.verdict == "failed" and report.failure is not None
    assert "1024 tokens a rank do not fit an all-to-all workspace made for 8" in report.failure.error
    assert predict(make_start(**flags)).verdict == "fits"


def test_weights_without_room_for_a_pool_are_an_outcome_and_not_a_mistake() -> None:
    report = predict(of_size(make_start(**{**DEMO, "mem_fraction_static": 0.02}), 2))
    assert report.verdict == "failed" and report.run.failed_in == "kv pool"
    assert report.failure is not None and "--mem-fraction-static 0.02" in report.failure.error


def test_what_no_server_could_run_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="kv-cache-dtype"):
        predict(make_start(kv_cache_dtype="int3", **DEMO))


def test_ascending_capture_reserves_more() -> None:
    flags: dict[str, Any] = {"model_path": "Qwen/Qwen3-30B-A3B", "gpu": "h200", "chunked_prefill_size": 2048}
    down, up = (predict(make_start(what_if, **flags)) for what_if in (None, "graphs-ascending"))
    ready = [report.phase("ready") for report in (down, up)]
    assert ready[0] is not None and ready[1] is not None
    assert ready[1].reserved_bytes > ready[0].reserved_bytes
    assert ready[1].allocated_bytes >= ready[0].allocated_bytes


def test_unknown_kernels_have_a_stand_in_that_is_told() -> None:
    start = make_start(**{**DEMO, "moe_runner_backend": "cutlass"})
    assert start.runtime.moe_runner_backend == "triton"
    assert "in place of cutlass" in start.notes[0]


def test_a_prediction_s_killed_process_is_one_line() -> None:
    starts = [make_start(name, **DEMO) for name in (None, "graphs-ascending")]
    with Predictor() as predictor:
        killer = Thread(target=_kill_a_predicting_process)
        killer.start()
        with pytest.raises(WorkFailed, match="a process that predicted a start was killed by SIGKILL"):
            predictor(starts)
        killer.join()


def _kill_a_predicting_process() -> None:
    def predicting() -> list[int]:
        return [pid for pid in children_of(os.getpid()) if "sgl_tune.memory.predict" in command_of(pid)]

    until(predicting, 60)
    os.kill(predicting()[0], signal.SIGKILL)


@pytest.mark.parametrize(
    "flags",
    [
        {"tp": 8},
        {"tp": 8, "dp": 8, "enable_dp_attention": True},
        {"tp": 8, "dp": 4, "ep": 8, "enable_dp_attention": True},
        {"tp": 16, "nnodes": 2},
    ],
)
def test_what_was_not_measured_says_from_what_it_is_taken(flags: dict[str, Any]) -> None:
    """NCCL was measured on two and four ranks: beyond, a figure names its source and its doubt is large."""
    small = {"chunked_prefill_size": 1024, "cuda_graph_max_bs": 8}
    report = predict(make_start(gpu="h200", model_path="Qwen3-30B-A3B", **small, **flags))
    unsure = [
        of for of in report.constants if of.name.startswith("nccl") and of.name not in ("nccl", "nccl:2")
    ]
    assert unsure
    for of in unsure:
        assert "8 x H200" in of.source or "on a line through" in of.source or "not measured" in of.source
        assert of.doubt is not None and of.doubt * 3 >= of.bytes
    assert report.margin_bytes > sum(of.doubt or 0 for of in unsure)

"""Whole starts predicted: public failures and a stock start must come out, from nothing but flags."""

from typing import Any

import pytest

from runtime.server.units import GIB, MIB
from sgl_tune.asking.whom import ByServer
from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.memory.command import answer
from sgl_tune.memory.core.predict import predict, predict_all
from sgl_tune.memory.options import FitOptions, MemoryOptions, ShowOptions
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.study import fitted
from sgl_tune.memory.views.tables import heading
from tests.memory.starts import DEMO, GLM, GLM_DP, make_start, make_starts, of_size


@pytest.fixture(scope="module")
def head_run() -> MemoryReport:
    return predict(make_start("lm-head-in-autotune", **GLM_DP))


class TestGlmOnB200:
    """sgl-project/sglang#23796: tried 6.38 GiB, 2.98 GiB free, 170.11 GiB allocated."""

    def test_the_public_out_of_memory_is_predicted_where_it_happened(self, head_run: MemoryReport) -> None:
        assert head_run.verdict == "oom" and head_run.run.failed_in == "autotune"
        assert head_run.oom is not None
        assert head_run.oom.tried_bytes == pytest.approx(6.38 * GIB, rel=0.03)
        assert head_run.oom.allocated_bytes == pytest.approx(170.11 * GIB, rel=0.02)
        assert head_run.oom.free_bytes < head_run.oom.tried_bytes
        where = head_run.oom.where
        assert where.startswith("forward/logits_processor.py") and "_gather_vocab" in where

    def test_the_dummy_batch_has_a_row_per_request_of_the_pool(self, head_run: MemoryReport) -> None:
        sizes = head_run.sizes
        assert sizes.kv_tokens is not None and sizes.context_length is not None
        assert sizes.max_running_requests == int(sizes.kv_tokens / sizes.context_length * 512)
        assert sizes.dummy_batch_rows == sizes.max_running_requests > 2048
        gathered = sizes.dummy_batch_rows * 8 * 154880 * 2
        assert head_run.phases[-1].largest[0].bytes == gathered

    def test_it_fits_without_the_head(self) -> None:
        assert predict(make_start(**GLM_DP)).verdict == "fits"

    def test_it_fits_without_dp_even_with_the_head(self) -> None:
        start = make_start("lm-head-in-autotune", disable_cuda_graph=True, **GLM)  # graphs come later
        assert predict(start).verdict == "fits"

    def test_with_a_draft_the_gathered_logits_are_57_mib(self) -> None:
        report = predict(make_start("lm-head-in-autotune", speculative_algorithm="EAGLE", **GLM_DP))
        assert report.verdict == "fits" and report.sizes.max_running_requests == 6
        tuned = report.phase("autotune")
        assert tuned is not None
        gathered = [held for held in tuned.largest if "_gather_vocab" in held.where]
        assert [round(held.bytes / MIB) for held in gathered] == [57, 57]
        assert {"draft weights", "draft graphs"} <= {phase.name for phase in report.phases}


def test_a_stage_has_no_more_tokens_than_the_one_with_the_fewest() -> None:
    """SGLang takes the smallest number of tokens that any rank would have alone."""
    starts = make_starts(pp=3, model_path="Llama-3.1-8B", gpu="l4", disable_cuda_graph=True)
    alone = [predict(start) for start in starts]
    tokens = [report.sizes.kv_tokens for report in alone]
    assert len(set(tokens)) > 1
    together = predict_all(starts)
    assert {report.sizes.kv_tokens for report in together} == {min(filter(None, tokens))}
    for before, after in zip(alone, together, strict=True):
        assert after.whose.rank == before.whose.rank and after.free_at_peak_bytes >= before.free_at_peak_bytes


def _asked(**flags: Any) -> MemoryOptions:
    return MemoryOptions(ByServer(ServerFlags.of(**{**DEMO, **flags}), core=True))


def test_a_remedy_of_a_start_that_dies_fits() -> None:
    flags = {"mem_fraction_static": 0.995, "max_running_requests": 4096, "context_length": 1024}
    died = answer(_asked(**flags), ShowOptions(), Output(Format.json)).report
    assert died.verdict == "oom" and died.remedies
    fraction = float(died.remedies[0].flags.removeprefix("--mem-fraction-static "))
    again = answer(
        _asked(**{**flags, "mem_fraction_static": fraction}), ShowOptions(), Output(Format.quiet)
    ).report
    assert again.verdict == "fits" and again.sizes.kv_tokens == died.remedies[0].kv_tokens


def test_a_fit_is_the_highest_fraction_that_fits() -> None:
    found, starter = fitted(_asked(context_length=1024), FitOptions(True), Output(Format.quiet))
    assert found.best.report.verdict == "fits" and found.best.slack >= found.best.report.margin_bytes
    assert found.beyond is None or found.beyond.slack < found.best.report.margin_bytes
    assert found.best.flags["mem_fraction_static"] > 0.9
    assert heading(found.best.report).startswith("demo-moe on L40S")
    command = starter.command(found.best.change(starter.release))
    assert f"--mem-fraction-static {found.best.notch / 1000:.3f}" in command and "demo-moe" in command


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


def test_ascending_capture_reserves_more() -> None:
    flags: dict[str, Any] = {"model_path": "Qwen/Qwen3-30B-A3B", "gpu": "h200", "chunked_prefill_size": 2048}
    down, up = (predict(make_start(what_if, **flags)) for what_if in (None, "graphs-ascending"))
    ready = [report.phase("ready") for report in (down, up)]
    assert ready[0] is not None and ready[1] is not None
    assert ready[1].reserved_bytes > ready[0].reserved_bytes
    assert ready[1].allocated_bytes >= ready[0].allocated_bytes


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
    """NCCL was measured on two and four ranks. For more, a figure names its source and has a large doubt."""
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

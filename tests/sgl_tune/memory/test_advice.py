"""Remedies: the right direction, the mildest that fits, best first, with starts judged by a rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from runtime.server.releases import release_named
from runtime.server.units import GIB
from runtime.start.run_record import Failure, Run
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.memory.advice import Attempt, remedies
from sgl_tune.memory.report import MemoryReport, Sizes
from sgl_tune.memory.start import Start, starts_of
from tests.sgl_tune.memory.reports import make_report


def _make_start(fraction: float = 0.9) -> Start:
    flags = {
        "model_path": "Qwen3-30B-A3B",
        "tp": 8,
        "dp": 8,
        "enable_dp_attention": True,
        "gpu": "h100",
        "mem_fraction_static": fraction,
    }
    return starts_of(resolve_deployment(ServerFlags(**flags), environ={}), "0")[0]  # type: ignore[arg-type]


def _failing(phase: str = "autotune", fraction: float = 0.9) -> MemoryReport:
    report = make_report(failed=True)
    failure = report.failure
    assert failure is not None
    sizes = Sizes(
        mem_fraction_static=fraction,
        kv_tokens=1_000_000,
        max_running_requests=2764,
        chunked_prefill_size=8192,
        decode_graphs=(1, 2, 256),
    )
    at_failure = replace(failure.at_failure, name=phase)
    run = replace(report.run, failure=replace(failure, phase=phase, at_failure=at_failure))
    return replace(report, run=run, sizes=sizes)


def _judged(start: Start) -> MemoryReport:
    """Fits up to a fraction of 0.83, to 1024 requests a rank, to a chunk of 4096, or to 64 graphs."""
    asked = start.deployment.inputs.asked
    fits = (
        (asked.mem_fraction_static or 1) <= 0.83
        or (asked.max_running_requests or 1 << 20) <= 1024 * 8
        or (asked.chunked_prefill_size or 1 << 20) <= 4096 * 8
        or asked.disable_cuda_graph
    )
    tokens = round(1_000_000 * (asked.mem_fraction_static or 1) / 0.9)
    return make_report(failed=not fits, free=2.0, kv_tokens=tokens)


def _predict(starts: Sequence[Start]) -> list[MemoryReport]:
    return [_judged(start) for start in starts]


def test_a_lower_fraction_and_fewer_requests_help_a_dummy_run_that_dies() -> None:
    found = remedies([_make_start()], _failing(), _predict)
    assert [remedy.flags for remedy in found] == [
        "--max-running-requests 8192",
        "--mem-fraction-static 0.83",
    ]
    assert found[0].cost == "at most 1,024 requests at once on a rank, not 2,764, as much KV"
    assert found[1].cost == "8 % less KV"
    assert found[1].free_at_peak_bytes == 2 * GIB


@pytest.mark.parametrize(
    ("phase", "flags"),
    [
        (
            "prefill graphs",
            {"--chunked-prefill-size 32768", "--disable-cuda-graph", "--max-running-requests 8192"},
        ),
        ("decode graphs", {"--disable-cuda-graph", "--max-running-requests 8192"}),
        ("kv pool", set()),
    ],
)
def test_what_is_made_smaller_is_what_the_failing_phase_needs(phase: str, flags: set[str]) -> None:
    found = {remedy.flags for remedy in remedies([_make_start()], _failing(phase), _predict)}
    assert found == flags | {"--mem-fraction-static 0.83"}


def test_a_pool_without_room_needs_a_higher_fraction() -> None:
    report = make_report(failed=True)
    assert report.failure is not None
    failure = Failure(
        "kv pool", "NoRoomForTokens: no memory for the KV pool", None, report.failure.at_failure
    )
    report = replace(
        report, run=Run({}, report.run.phases, failure, ()), sizes=Sizes(mem_fraction_static=0.5)
    )
    assert report.verdict == "failed"

    def predict(starts: Sequence[Start]) -> list[MemoryReport]:
        fits = [
            0.5 < (start.runtime.mem_fraction_static or 1) < 0.87 or start.parallel.tp > 8 for start in starts
        ]
        return [make_report(failed=not of) for of in fits]

    found = [remedy.flags for remedy in remedies([_make_start(0.5)], report, predict)]
    assert found == ["--mem-fraction-static 0.86", "--tp-size 16"]


def test_what_only_just_fits_is_no_remedy() -> None:
    def barely(starts: Sequence[Start]) -> list[MemoryReport]:
        return [make_report(free=0.1) for _ in starts]

    assert remedies([_make_start()], _failing(), barely) == ()


def test_nothing_is_advised_below_no_fraction() -> None:
    tried: list[float] = []

    def record(starts: Sequence[Start]) -> list[MemoryReport]:
        tried.extend(start.runtime.mem_fraction_static or 0 for start in starts)
        return [make_report(failed=True) for _ in starts]

    assert remedies([_make_start(0.12)], _failing(fraction=0.12), record) == ()
    assert all(0 < fraction <= 0.97 for fraction in tried)


def test_what_the_server_refuses_is_not_tried() -> None:
    assert Attempt({"attention_backend": "trtllm_mla"}).of([_make_start()]) == [], "Blackwell only"
    assert Attempt({"attention_backend": "triton"}).of([_make_start()])


@pytest.mark.parametrize(
    ("version", "graphs"), [("0.5.13", "--cuda-graph-max-bs 64"), ("0.5.23", "--cuda-graph-max-bs-decode 64")]
)
def test_an_attempt_is_written_as_its_release_spells_it(version: str, graphs: str) -> None:
    asked = {"kv_cache_dtype": "fp8_e4m3", "mem_fraction_static": 0.9, "disable_cuda_graph": True}
    release = release_named(version).release
    written = Attempt(asked).flags(release)
    assert written == "--kv-cache-dtype fp8_e4m3 --mem-fraction-static 0.90 --disable-cuda-graph"
    assert Attempt({"cuda_graph_max_bs": 64}).flags(release) == graphs


@pytest.mark.parametrize("phase", ["weights", "draft weights"])
def test_weights_that_do_not_fit_want_more_gpus_and_nothing_else(phase: str) -> None:
    tried: list[int] = []

    def judged(starts: Sequence[Start]) -> list[MemoryReport]:
        tried.extend(start.parallel.tp for start in starts)
        return [make_report(failed=start.parallel.tp < 32, free=2.0) for start in starts]

    (remedy,) = remedies([_make_start()], _failing(phase), judged)
    assert (remedy.flags, remedy.cost) == ("--tp-size 32", "on 32 GPUs, not 8, as much KV")
    assert tried == [16, 32]


def test_of_other_ranks_a_start_keeps_its_stage() -> None:
    start = _make_start()
    wider = replace(start, rank=3).asking(tp_size=16)
    assert (wider.parallel.tp, wider.rank, wider.runtime.mem_fraction_static) == (16, 6, 0.9)

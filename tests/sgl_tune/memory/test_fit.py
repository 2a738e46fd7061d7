"""The largest start that fits: it does, the next does not, and what is asked for holds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime.server.units import GIB
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.errors import CheckFailed
from sgl_tune.memory import predict as predictions
from sgl_tune.memory.fit import Fit, fit
from sgl_tune.memory.goals import Goals
from sgl_tune.memory.predict import predict, settled
from sgl_tune.memory.start import Start, starts_of
from sgl_tune.memory.trial import Trials
from tests.sgl_tune.running import run, run_here
from tests.sgl_tune.schemas import schema_faults
from tests.sweeps import WHOLE

MOST_TRIALS = 24
SMALL: dict[str, Any] = {"chunked_prefill_size": 512, "cuda_graph_max_bs": 8}
L4: dict[str, Any] = {"model_path": "Llama-3.1-8B", "gpu": "l4", **SMALL}
DEPLOYMENTS: list[dict[str, Any]] = [
    {"model_path": "Llama-3.1-70B", "gpu": "h100", "tp": 2, "mem_fraction_static": 0.97, **SMALL},
    {"model_path": "gpt-oss-20b", "gpu": "l40s", "tp": 2, "dp": 2, "enable_dp_attention": True, **SMALL},
    {"model_path": "Mixtral-8x7B", "gpu": "h200", "tp": 4, "ep": 4, "mem_fraction_static": 0.2, **SMALL},
    {"model_path": "DeepSeek-V3", "gpu": "h200", "tp": 8, "speculative_algorithm": "EAGLE", **SMALL},
    {"model_path": "Llama-3.1-8B", "gpu": "l4", "pp": 2, "disable_cuda_graph": True},
]


def _starts(**flags: Any) -> tuple[Start, ...]:
    return starts_of(resolve_deployment(ServerFlags(**flags), environ={}), "distinct")


def _fit(goals: Goals = Goals(), **flags: Any) -> tuple[Fit, Trials]:
    trials = Trials(_starts(**flags))
    return fit(trials, goals, lambda: None), trials


@pytest.mark.parametrize(
    "flags",
    DEPLOYMENTS if WHOLE else DEPLOYMENTS[-2:],
    ids=lambda flags: f"{flags['model_path']} {flags['gpu']}",
)
def test_what_is_printed_fits_and_a_notch_more_does_not(flags: dict[str, Any]) -> None:
    found, trials = _fit(**flags)
    assert trials.count <= MOST_TRIALS
    best, beyond = found.best, found.beyond
    assert beyond is not None and beyond.notch == best.notch + 1
    predictions._KNOWN.clear()
    starts = [start.asking(**best.flags) for start in _starts(**flags)]
    again = settled(starts, [*map(predict, starts)], lambda few: [*map(predict, few)])
    assert all(report.verdict == "fits" for report in again)
    assert min(report.free_at_peak_bytes for report in again) == best.slack >= best.report.margin_bytes
    assert beyond.slack < beyond.report.margin_bytes
    for choice in found.choices:
        assert choice.trial.slack >= choice.trial.report.margin_bytes, choice.what


def test_the_more_must_stay_free_the_fewer_tokens_there_are() -> None:
    found = [_fit(Goals(free_bytes=free * GIB), **L4)[0] for free in (0, 2)]
    tokens = [each.best.tokens for each in found]
    assert tokens == sorted(tokens, reverse=True) and len(set(tokens)) == 2
    assert all(each.best.slack >= each.goals.free_bytes for each in found)


def test_what_does_not_fit_otherwise_gives_way_where_memory_is_short() -> None:
    found, _ = _fit(Goals(context_length=34_000), **{**L4, "chunked_prefill_size": 4096})
    assert found.best.tokens >= 34_000
    assert found.given_up and "chunks of 2,048, not 4,096" in found.given_up[0]


def test_requests_are_what_runs_at_once_and_what_the_cache_holds() -> None:
    goals = Goals(requests=8, context_length=2048)
    found, trials = _fit(goals, **L4)
    assert found.best.report.sizes.max_running_requests == 8
    assert found.best.tokens >= 8 * 2048 == goals.tokens(trials.first.parallel.attn_dp)


def test_requests_are_shared_out_to_all_ranks() -> None:
    flags = {"model_path": "demo-moe", "gpu": "l4", "tp": 2, "dp": 2, "enable_dp_attention": True}
    found, _ = _fit(Goals(requests=3), **flags)
    assert found.best.flags["max_running_requests"] == 4


@pytest.mark.parametrize(
    ("flags", "goals", "words"),
    [
        ({"model_path": "Llama-3.1-70B", "gpu": "h100"}, Goals(), "the weights take 131.48 GiB of 78.50 GiB"),
        (L4, Goals(free_bytes=20 * GIB), "are missing without any KV cache"),
        (L4, Goals(context_length=90_000), "90,000 are wanted (1 request of 90,000 tokens)"),
    ],
)
def test_where_nothing_fits_what_binds_is_named(flags: dict[str, Any], goals: Goals, words: str) -> None:
    with pytest.raises(CheckFailed) as failed:
        _fit(goals, **flags)
    assert words in failed.value.message and failed.value.message.startswith("nothing fits")


LINE = ("mem-report", "--fit", "--model", "demo-moe", "--gpu", "l4")


def test_every_format() -> None:
    human, markdown, quiet = (run_here(*LINE, *more).out for more in ((), ("--format", "markdown"), ("-q",)))
    assert quiet.startswith("--mem-fraction-static 0.") and quiet.count("\n") == 1
    assert quiet.strip() in human and quiet.strip() in markdown
    assert "Binds: " in human and "One notch more" in human and "Second best: " in human
    assert "| as above |" in markdown
    assert "(model shape: preset demo-moe)" in human
    ran = run_here(*LINE, "--free", "1GiB", "--requests", 4, "--format", "json")
    assert schema_faults("mem-report-fit", json.loads(ran.out)) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--free", "2 apples"), "--free '2 apples' is not a size"),
        (("--requests", 0), "--requests 0"),
        (("--sweep", "mem-fraction-static=0.8:0.9:0.1"), "--fit and --sweep are two questions"),
        (("--html", "x.html"), "--html shows one start"),
    ],
)
def test_what_is_no_question_is_refused(more: tuple[object, ...], words: str) -> None:
    ran = run(*LINE, *more)
    assert ran.code == 2 and words in ran.err and "Traceback" not in ran.err


def test_goals_without_fit_are_refused() -> None:
    ran = run("mem-report", "--model", "demo-moe", "--free", "1GiB")
    assert ran.code == 2 and "add --fit" in ran.err


def test_giving_up_prefill_graphs_is_said_and_keeping_them_has_its_price() -> None:
    flags = {"model_path": "Llama-3.1-8B", "gpu": "h200", "sglang_version": "0.5.17"}
    found, _ = _fit(**flags, **SMALL)
    best = found.best.report
    room = best.sizes.prefill_graphs_room
    assert best.phase("prefill graphs") is None and room is not None and room < 0
    [kept] = [choice.trial for choice in found.choices if choice.what == "prefill graphs kept"]
    assert kept.report.phase("prefill graphs") is not None and kept.tokens < found.best.tokens
    assert (kept.report.sizes.prefill_graphs_room or 0) >= kept.report.margin_bytes
    chosen = {**flags, **found.best.flags}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]
    [line] = [line for line in run_here("mem-report", *words).out.splitlines() if "FITS" in line]
    assert "; without prefill graphs: " in line

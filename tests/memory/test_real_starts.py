"""Starts of a stock SGLang 0.5.17, measured on H200s (benchmarks/real_starts), as predicted today."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.real_starts.accuracy import deployment_of, prediction, real_starts
from runtime.server.units import MIB
from sgl_tune.memory.report import MemoryReport

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@cache
def _measured(of_round: str = "first") -> dict[str, Any]:
    starts = json.loads((RESULTS / f"real_starts_{of_round}.json").read_text())["starts"]
    return {row["name"]: row for row in starts}


def _predicted(name: str, of_round: str = "first") -> MemoryReport:
    return prediction(deployment_of(next(start for start in real_starts(of_round) if start.name == name)))


@pytest.mark.parametrize("name", ["glm-full-dies", "next-mtp-dies", "qwen30-dp2-cutlass", "v2-lite-dies"])
def test_it_ends_as_it_did(name: str) -> None:
    """The first gives its prefill graphs up, the second has forgotten its draft's keys and values."""
    real = _measured()[name]
    report = _predicted(name)
    assert (report.verdict == "fits") is real["measured"]["fits"]
    if report.verdict != "fits":
        assert report.run.failed_in == real["measured"]["failed_in"]
    for error in real["errors"]:
        if error["what"] == "KV tokens":
            assert report.sizes.kv_tokens == pytest.approx(error["measured"], rel=0.001)
        phase = report.phase(error["what"].removesuffix(": outside torch"))
        if phase is not None:
            assert abs(phase.non_torch_bytes - error["measured"]) <= report.margin_bytes, error["what"]


@pytest.mark.parametrize(
    ("name", "of_round"), [("scout", "fourth"), ("llama-defaults", "first"), ("mistral", "third")]
)
def test_tables_of_angles_are_made_first_and_lengthened_last(name: str, of_round: str) -> None:
    """The first has one of 5 GiB, whose context is not its model's; those of the others reach 256 further."""
    measured = {error["what"]: error["measured"] for error in _measured(of_round)[name]["errors"]}
    phase = _predicted(name, of_round).phase("weights")
    assert phase is not None and abs(phase.peak_bytes - measured["weights: peak"]) < MIB


@pytest.mark.parametrize(("name", "mib"), [("llama-fp8", 16), ("granite4", 16), ("mixtral-fp8", 128)])
def test_the_peak_of_its_weights(name: str, mib: int) -> None:
    """Of fp8, halves that are drawn at random, of a Mixtral's an expert at a time; of a Granite, a head that
    gives way to the embedding."""
    start = next(start for start in real_starts("fifth") if start.name == name)
    by_another = replace(start, command=[*start.command, "--attention-backend", "flashinfer"])
    weights = prediction(deployment_of(by_another)).phase("weights")
    measured = next(e["measured"] for e in _measured("fifth")[name]["errors"] if e["what"] == "weights: peak")
    assert weights is not None and abs(weights.peak_bytes - measured) < mib * MIB

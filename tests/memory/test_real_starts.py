"""Starts of a stock SGLang 0.5.17, measured on H200s (benchmarks/real_starts), as predicted today."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.real_starts.accuracy import deployment_of, prediction, real_starts

MEASURED = Path(__file__).parents[2] / "benchmarks" / "results" / "real_starts_first.json"


@cache
def _measured() -> dict[str, Any]:
    return {row["name"]: row for row in json.loads(MEASURED.read_text())["starts"]}


@pytest.mark.parametrize("name", ["glm-full-dies", "next-mtp-dies", "qwen30-dp2-cutlass", "v2-lite-dies"])
def test_it_ends_as_it_did(name: str) -> None:
    """The first gives its prefill graphs up, the second has forgotten its draft's keys and values."""
    real = _measured()[name]
    report = prediction(deployment_of(next(start for start in real_starts("first") if start.name == name)))
    assert (report.verdict == "fits") is real["measured"]["fits"]
    if report.verdict != "fits":
        assert report.run.failed_in == real["measured"]["failed_in"]
    for error in real["errors"]:
        if error["what"] == "KV tokens":
            assert report.sizes.kv_tokens == pytest.approx(error["measured"], rel=0.001)
        phase = report.phase(error["what"].removesuffix(": outside torch"))
        if phase is not None:
            assert abs(phase.non_torch_bytes - error["measured"]) <= report.margin_bytes, error["what"]

"""A start that takes forwards from an earlier one tells what it tells alone, to the byte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.memory import predict as predictions
from sgl_tune.memory.predict import predict
from sgl_tune.memory.start import Start, starts_of

BASE: dict[str, Any] = {"chunked_prefill_size": 512, "cuda_graph_max_bs": 16, "gpu": "h200"}
STARTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"model_path": "Qwen3-30B-A3B"}, {"mem_fraction_static": 0.8}),
    (
        {"model_path": "Qwen3-30B-A3B", "tp": 4, "dp": 2, "enable_dp_attention": True},
        {"cuda_graph_max_bs": 8},
    ),
    (
        {"model_path": "DeepSeek-V3", "tp": 8, "speculative_algorithm": "EAGLE"},
        {"mem_fraction_static": 0.93, "chunked_prefill_size": 256},
    ),
]


def _start(**flags: Any) -> Start:
    return starts_of(resolve_deployment(ServerFlags(**flags), environ={}), "0")[0]


def _told(start: Start) -> dict[str, Any]:
    told = predict(start).to_json()
    return {**told, "phases": [{**phase, "seconds": 0} for phase in told["phases"]]}


@pytest.mark.parametrize(("flags", "changes"), STARTS)
def test_a_second_start_is_what_it_is_alone(
    flags: dict[str, Any], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictions, "_KNOWN", {})
    first, second = _start(**BASE, **flags), _start(**{**BASE, **flags, **changes})
    predict(first)
    (known,) = predictions._KNOWN.values()
    shared = _told(second)
    assert list(predictions._KNOWN.values()) == [known], "both starts have the same forwards"
    predictions._KNOWN.clear()
    assert shared == _told(second)


def test_a_start_that_goes_beyond_its_gpu_tells_what_is_missing() -> None:
    start = _start(**{**BASE, "gpu": "h100"}, model_path="Qwen3-30B-A3B", mem_fraction_static=0.99)
    dead, alive = predict(start), predict(replace(start, overdraft=1 << 36))
    assert dead.verdict == "oom" and alive.verdict == "fits"
    assert [phase.name for phase in dead.phases] == [phase.name for phase in alive.phases[: len(dead.phases)]]
    assert dead.sizes == alive.sizes and alive.total_bytes == dead.total_bytes
    failed = alive.phase(dead.run.failed_in or "")
    assert failed is not None
    assert failed.non_torch_bytes + failed.reserved_peak_bytes > alive.total_bytes

"""The buffer beside which Triton times kernels of MiniMax-M3, in starts of four of its layers, predicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.units import MIB
from sgl_tune.memory.predict import predict
from tests.memory.starts import make_start
from tests.oracle.published import published


@pytest.mark.parametrize(
    ("release", "gpu", "decodes"),
    [("0.5.22", "h200", True), ("0.5.23", "h200", False), ("0.5.23", "b200", True)],
)
def test_kernels_are_timed_where_they_first_run(
    release: str, gpu: str, decodes: bool, tmp_path: Path
) -> None:
    told = published()["MiniMaxAI/MiniMax-M3"].config
    few = {**told, "text_config": {**told["text_config"], "num_hidden_layers": 4}}
    (tmp_path / "config.json").write_text(json.dumps(few))
    sizes: dict[str, Any] = {"tp": 8, "cuda_graph_max_bs": 4, "chunked_prefill_size": 256}
    sizes |= {"context_length": 8192, "max_running_requests": 64, "mem_fraction_static": 0.5}
    report = predict(make_start(model_path=str(tmp_path), gpu=gpu, sglang_version=release, **sizes))
    timed = [
        phase.name
        for phase in report.phases
        if any("timings" in held.what and held.bytes == 256 * MIB for held in phase.largest)
    ]
    assert timed == ["prefill graphs", *(["decode graphs"] if decodes else [])]

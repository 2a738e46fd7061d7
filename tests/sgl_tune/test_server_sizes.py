"""The defaults that SGLang's start resolves from the GPU's memory: figures of its own arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server import sizing
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment

H200, B200 = 143771, 183359


def _deployment(**flags: Any) -> Deployment:
    target = {"arch": "sm90", "sglang_version": "0.5.23", "flashinfer_version": "0.7.2"}
    return resolve_deployment(ServerFlags(**{**target, **flags}), environ={})


def _fraction(gpu_mib: int, **flags: Any) -> float:
    found = _deployment(**flags)
    return sizing.default_mem_fraction(gpu_mib, found.model, found.parallel, found.runtime)


@pytest.mark.parametrize(
    ("gpu_mib", "flags", "fraction"),
    [
        (H200, {"model_path": "Qwen3-30B-A3B"}, 0.903),
        # 512 + 1.5 x 8192 + 1024 + 2 x 512 + 8 x 58 graphs
        (H200, {"model_path": "Qwen3-30B-A3B", "tp": 8}, 0.893),
        # the guess is made on the whole chunk: 512 + 1.5 x 8192 + 1024 + 2 x 512 + 512 x 8 x 4.5 + 8 x 58
        (H200, {"model_path": "Qwen3-30B-A3B", "tp": 8, "dp": 8}, 0.765),
        # MLA: 512 + 1.5 x 16384 + 1024 + 2 x 512 + 512 x 8 x 4.5 + 1536
        (B200, {"model_path": "GLM-5.1-FP8", "tp": 8, "dp": 8}, 0.743),
        (B200, {"model_path": "GLM-5.1-FP8", "tp": 8, "dp": 8, "max_running_requests": 64}, 0.84),
        (
            B200,
            {"model_path": "GLM-5.1-FP8", "tp": 8, "dp": 8, "max_running_requests": 64}
            | {"sglang_version": "0.5.17"},
            0.743,
        ),
    ],
)
def test_default_mem_fraction(gpu_mib: int, flags: dict[str, Any], fraction: float) -> None:
    assert _fraction(gpu_mib, **flags) == fraction


@pytest.mark.parametrize(
    ("chunk", "mla", "version", "largest"),
    [
        (8192, False, "0.5.23", 8192),
        (16384, True, "0.5.23", 8192),
        (2048, True, "0.5.23", 2048),
        (8192, True, "0.5.17", 2048),
        (1024, True, "0.5.17", 1024),
    ],
)
def test_the_largest_prefill_graph(chunk: int, mla: bool, version: str, largest: int) -> None:
    assert sizing.prefill_graph_max_tokens(chunk, mla, version) == largest


def test_graph_sizes_of_the_real_start() -> None:
    assert len(sizing.prefill_graph_sizes(8192)) == 58
    assert len(sizing.decode_graph_sizes(256)) == 36
    assert len(sizing.decode_graph_sizes(512)) == 52


def test_requests_of_the_real_start() -> None:
    parallel = _deployment(model_path="Qwen3-30B-A3B").parallel
    assert sizing.max_running_requests(669939, 40960, None, parallel) == 4096
    assert sizing.max_running_requests(669939, 202752, None, parallel) == 2048
    assert sizing.max_running_requests(100, 40960, 4096, parallel) == 50

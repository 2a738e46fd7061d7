"""The defaults that SGLang's start resolves from the GPU's memory: figures of its own arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.graphs import decode_graph_sizes, prefill_graph_sizes
from runtime.server.requests import max_running_requests
from runtime.server.shape import Server
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment

H200, B200 = "H200", "B200"


def _server(gpu: str, **flags: Any) -> Server:
    target = {"gpu": gpu, "sglang_version": "0.5.23", "flashinfer_version": "0.7.2"}
    return resolve_deployment(ServerFlags(**{**target, **flags}), environ={}).server


@pytest.mark.parametrize(
    ("gpu", "flags", "fraction"),
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
def test_default_mem_fraction(gpu: str, flags: dict[str, Any], fraction: float) -> None:
    assert _server(gpu, **flags).mem_fraction_static == fraction


@pytest.mark.parametrize(
    ("chunk", "model", "version", "largest"),
    [
        (8192, "Qwen3-30B-A3B", "0.5.23", 8192),
        (16384, "GLM-5.1-FP8", "0.5.23", 8192),
        (2048, "GLM-5.1-FP8", "0.5.23", 2048),
    ],
)
def test_the_largest_prefill_graph(chunk: int, model: str, version: str, largest: int) -> None:
    server = _server(H200, model_path=model, tp=8, chunked_prefill_size=chunk, sglang_version=version)
    assert server.prefill_graphs[-1] == largest


def test_graph_sizes_of_the_real_start() -> None:
    assert len(prefill_graph_sizes(8192)) == 58
    assert len(decode_graph_sizes(256)) == 36
    assert len(decode_graph_sizes(512)) == 52


def test_requests_of_the_real_start() -> None:
    assert max_running_requests(669939, 40960, None, 1) == 4096
    assert max_running_requests(669939, 202752, None, 1) == 2048
    assert max_running_requests(100, 40960, 4096, 1) == 50

"""Inputs that SGLang holds before any graph's, as many as its release says: runner/eager_runner.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sgl_tune.memory.predict import predict
from tests.memory.starts import DEMO, make_start
from tests.server.asking import server

LONG = {"chunked_prefill_size": -1}
SHORT = {"chunked_prefill_size": 16, "max_running_requests": 64}


@pytest.mark.parametrize(
    ("release", "flags", "held_for"),
    [
        ("0.5.12", {}, None),
        ("0.5.13", {}, None),
        ("0.5.13", LONG, None),
        ("0.5.14", {}, "a chunk"),
        ("0.5.14", LONG, "the pool"),
        ("0.5.14", SHORT, "all requests"),
        ("0.5.15", {}, "the pool"),
        ("0.5.15", SHORT, "the pool"),
        ("0.5.23", {}, "the pool"),
    ],
)
def test_a_release_holds_inputs_for(release: str, flags: dict[str, Any], held_for: str | None) -> None:
    """Six numbers a token, three of them positions of images, and two a request."""
    report = predict(make_start(**DEMO, sglang_version=release, **flags))
    sizes, phase = report.sizes, report.phase("eager buffers")
    assert report.verdict == "fits" and report.phase("decode graphs") is not None
    if held_for is None:
        assert phase is None
        return
    requests = sizes.max_running_requests or 0
    tokens = {"a chunk": sizes.chunked_prefill_size, "the pool": sizes.kv_tokens, "all requests": requests}
    assert len(set(tokens.values())) == 3  # none is taken for another
    assert phase is not None
    assert phase.persistent_bytes == pytest.approx(48 * (tokens[held_for] or 0) + 16 * requests, rel=0.01)


def test_without_chunks_a_short_pool_is_all_that_is_held() -> None:
    start = make_start(**DEMO, sglang_version="0.5.15", **LONG, max_running_requests=64)
    report = predict(replace(start, runtime=replace(start.runtime, max_total_tokens=4096)))
    phase = report.phase("eager buffers")
    assert phase is not None and report.sizes.kv_tokens == 4096 < start.runtime.prefill_tokens
    assert phase.persistent_bytes == pytest.approx(48 * 4096 + 16 * 64, rel=0.01)


@pytest.mark.parametrize(
    ("version", "stages", "chunk", "dynamic", "tokens"),
    [
        (14, 2, 4096, True, 16384),  # as --max-prefill-tokens
        (14, 2, 16000, True, 20000),
        (23, 2, 4096, True, 16384),
        (14, 1, 4096, True, 4096),
        (14, 2, 4096, False, 4096),
        (14, 2, -1, True, 0),
    ],
)
def test_dynamic_chunks_of_stages_have_room_to_grow(
    version: int, stages: int, chunk: int, dynamic: bool, tokens: int
) -> None:
    others = {"enable_dynamic_chunking": dynamic}
    asked = {"pp_size": stages, "chunked_prefill_size": chunk, "disable_cuda_graph": True}
    assert server("qwen3", version, "H200", **asked, others=others).runtime.prefill_buffer == tokens

"""Inputs that SGLang holds before any graph's, as many as its release says: runner/eager_runner.py."""

from __future__ import annotations

from typing import Any

import pytest

from sgl_tune.memory.predict import predict
from tests.memory.starts import DEMO, make_start

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

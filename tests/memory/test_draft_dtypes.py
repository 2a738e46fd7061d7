"""What a draft keeps of tokens in a dtype of its own: --speculative-draft-kv-cache-dtype."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sgl_tune.memory.predict import predict
from sgl_tune.memory.report import MemoryReport
from tests.memory.starts import DEMO, make_start

SMALL = {"mem_fraction_static": 0.4, "max_running_requests": 8, "chunked_prefill_size": 256}


def _predicted(kept: str | None) -> MemoryReport:
    start = make_start(**{**DEMO, **SMALL}, speculative_algorithm="EAGLE")
    assert start.runtime.speculative is not None
    drafted = replace(start.runtime.speculative, kv_cache_dtype=kept)
    return predict(replace(start, runtime=replace(start.runtime, speculative=drafted)))


def test_its_pool_is_of_that_dtype_and_its_targets_as_large_as_before() -> None:
    as_target, in_fp8 = _predicted(None), _predicted("fp8_e4m3")
    assert as_target.sizes.kv_tokens == in_fp8.sizes.kv_tokens
    layers = [report.phase("draft kv pool") for report in (as_target, in_fp8)]
    whole, half = (layer.persistent_bytes for layer in layers if layer is not None)
    assert whole == pytest.approx(2 * half, rel=1e-3) and half > 0
    each = as_target.sizes.kv_bytes_per_token or 0
    assert in_fp8.sizes.kv_bytes_per_token == each - each // 10  # one of five layers is the draft's

"""What SGLang and FlashInfer do for one MoE backend and not for the others."""

from __future__ import annotations

import pytest

from runtime.server.backends import BACKENDS, backend_row

SWITCHES = {
    "auto": set(),
    "triton": set(),
    "cutlass": {"stood_in"},
    "deep_gemm": {"stood_in", "is_predicted"},
    "flashinfer_cutlass": {"ranged_by_chunk", "fuses_shared_experts", "spread_over_one_or_all"},
    "flashinfer_trtllm": {"marks_with_minus_one", "defers_finalising"},
    "flashinfer_trtllm_routed": {"routed"},
    "flashinfer_mxfp4": {"stood_in"},
    "flashinfer_cutedsl": {"stood_in", "spread_over_one_or_all"},
    "flashinfer_megamoe": {"stood_in", "files_by_gpu"},
}
NAMES = {
    *(
        "stood_in",
        "is_predicted",
        "ranged_by_chunk",
        "routed",
        "marks_with_minus_one",
        "fuses_shared_experts",
    ),
    *("defers_finalising", "files_by_gpu", "spread_over_one_or_all"),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_what_is_special_about_a_backend(name: str) -> None:
    assert {switch for switch in NAMES if getattr(BACKENDS[name], switch)} == SWITCHES[name]


def test_a_backend_that_nobody_knows_is_like_sglangs_own() -> None:
    unknown = backend_row("new_kernels")
    assert (unknown.name, unknown.tuned_since, unknown.takes) == ("new_kernels", None, {})

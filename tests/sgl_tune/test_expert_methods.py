"""Experts in each format on each MoE backend that is tuned: planned, on kernels of their own, or an end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runtime.server.backends import BACKENDS
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.errors import UsageError
from sgl_tune.keys.call_shapes import moe_shapes, tunes_moe
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.starts import never_starts
from tests.memory.quantized import SECTIONS
from tests.sgl_tune.modelopt import quantized

MODEL = "Qwen3-30B-A3B"
TUNED = [name for name, row in BACKENDS.items() if row.tuned_since is not None]
ONLINE = ("fp8", "mxfp8", "modelopt_fp4", "nvfp4_online", "mxfp4", "w4afp8", "bitsandbytes")
Asks = Callable[..., Deployment]


@pytest.fixture(scope="module")
def asks(tmp_path_factory: pytest.TempPathFactory) -> Asks:
    folders = {}
    for form, section in SECTIONS.items():
        folders[form] = quantized(tmp_path_factory.mktemp("form"), MODEL, **section)

    def resolved(form: str, gpu: str, release: str, **flags: Any) -> Deployment:
        told = {"model_path": folders.get(form, MODEL), "sglang_version": release, "gpu": gpu, "tp": 2}
        return resolve_deployment(ServerFlags(**{**told, **flags}), environ={})

    return resolved


@pytest.mark.parametrize("release", ["0.5.14", "0.5.18", "0.5.23"])
@pytest.mark.parametrize("gpu", ["H200", "B200", "RTX PRO 6000"])
def test_no_server_that_tunes_is_unknown(gpu: str, release: str, asks: Asks) -> None:
    seen = 0
    cases = [(form, {}) for form in SECTIONS] + [("plain", {"quantization": one}) for one in (None, *ONLINE)]
    for form, flags in cases:
        for backend in TUNED:
            try:
                deployment = asks(form, gpu, release, moe_runner_backend=backend, **flags)
            except UsageError:
                continue
            assert unplanned(deployment) == (), (form, flags, backend)
            seen += 1
    assert seen > 40


CUTLASS, MXFP4 = "flashinfer_cutlass", "flashinfer_mxfp4"
TRTLLM, ROUTED = "flashinfer_trtllm", "flashinfer_trtllm_routed"


@pytest.mark.parametrize(
    ("form", "backend", "gpu", "release", "answer"),
    [
        ("nvfp4", TRTLLM, "B200", "0.5.12", "flashinfer::trtllm_fp4_block_scale_moe"),
        ("fp8 a block", TRTLLM, "B200", "0.5.12", "flashinfer::trtllm_fp8_block_scale_moe"),
        ("fp8 a row", TRTLLM, "B200", "0.5.23", "ends"),
        ("int4", TRTLLM, "B200", "0.5.22", "ends"),  # Marlin's, of a choice that is left to others
        ("int4", TRTLLM, "B200", "0.5.23", "its own"),
        ("int4", CUTLASS, "H200", "0.5.14", "its own"),
        ("nvfp4", CUTLASS, "RTX PRO 6000", "0.5.15", "its own"),
        ("nvfp4", CUTLASS, "RTX PRO 6000", "0.5.16", "trtllm::fused_moe::gemm1"),
        ("nvfp4", CUTLASS, "H200", "0.5.23", "its own"),
        ("nvfp4", MXFP4, "B200", "0.5.22", "ends"),
        ("nvfp4", MXFP4, "B200", "0.5.23", "trtllm::fused_moe::gemm1"),
        ("plain", MXFP4, "H200", "0.5.22", "ends"),
        ("plain", MXFP4, "H200", "0.5.23", "its own"),
        ("modelopt fp8", MXFP4, "H200", "0.5.23", "its own"),
        ("modelopt fp8", ROUTED, "H200", "0.5.17", "its own"),
        ("modelopt nvfp4", MXFP4, "B200", "0.5.23", "ends"),
        ("gptq", MXFP4, "H200", "0.5.23", "ends"),
        ("awq", MXFP4, "H200", "0.5.23", "ends"),
    ],
)
def test_what_runs_them(form: str, backend: str, gpu: str, release: str, answer: str, asks: Asks) -> None:
    deployment = asks(form, gpu, release, moe_runner_backend=backend)
    assert deployment.server.tunes
    if never_starts(deployment):
        found = "ends"
    else:
        found = moe_shapes(deployment)[0].op if tunes_moe(deployment) else "its own"
    assert found == answer


def test_mxfp4_is_made_of_plain_weights_nowhere(asks: Asks) -> None:
    """Of SGLang's class on a GPU of NVIDIA: an assertion, as its matrices have no method."""
    why = never_starts(asks("plain", "B200", "0.5.23", quantization="mxfp4"))
    assert why is not None and "AMD" in str(why)

"""MXFP8 and NVFP4 GEMMs of dense layers against FlashInfer's own keys, by each backend that SGLang names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from flashinfer.gemm import gemm_base

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.dense_shapes import linear_sizes
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.keys import expected_keys
from sgl_tune.keys.starts import never_starts
from tests.sgl_tune.modelopt import in_modelopt
from tests.stock.calls import FP4, FP8, deployment_of, meta, serve
from tests.stock.kernel_stubs import Specification, asking_tuner

MODEL = "Llama-3.1-8B"
BACKENDS = {
    "auto": "cute-dsl",
    "flashinfer_cutedsl": "cute-dsl",
    "flashinfer_cutlass": "cutlass",
    "flashinfer_trtllm": "trtllm",
    **dict.fromkeys(("flashinfer_deepgemm", "cutlass", "triton", "aiter"), "cute-dsl"),
}


def _asks(asked: str, release: str = "0.5.23", arch: str = "sm100", **flags: Any) -> Deployment:
    told = {"model_path": MODEL, "quantization": "mxfp8", "tp": 2, "sglang_version": release, "arch": arch}
    return deployment_of(**{**told, **flags}).asking(fp8_gemm_runner_backend=asked)


@pytest.mark.parametrize("asked", BACKENDS)
def test_mxfp8_on_each_backend(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner, deployment = asking_tuner(monkeypatch), _asks(asked)
    _without_kernels(monkeypatch)

    def call(deployment: Deployment, rows: int) -> None:
        for k, n, _ in linear_sizes(deployment, "mxfp8"):
            scales = -(-rows // 128) * 128 * (k // 32)
            gemm_base.mm_mxfp8(
                *(meta(rows, k, dtype=FP8), meta(n, k, dtype=FP8).T),
                meta(scales, dtype=torch.uint8),
                meta(-(-n // 128) * 128 * (k // 32), dtype=torch.uint8),
                out_dtype=torch.bfloat16,
                backend=BACKENDS[asked],
                skip_check=True,
            )

    asked_for = serve(deployment, call, tuner)
    (op,) = expected_keys(deployment)
    assert dict.fromkeys(op.keys, op.policy) == asked_for


FP4_BACKENDS = {
    "flashinfer_cutedsl": "cute-dsl",
    "flashinfer_cutlass": "cutlass",
    "flashinfer_cudnn": "cudnn",
    "flashinfer_trtllm": "trtllm",
}


@pytest.mark.parametrize("asked", FP4_BACKENDS)
def test_nvfp4_on_each_backend(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = asking_tuner(monkeypatch)
    _without_kernels(monkeypatch)
    told = {"model_path": in_modelopt("Qwen3-30B-A3B", "NVFP4"), "tp": 2, "arch": "sm100"}
    deployment = deployment_of(**told, moe_runner_backend="flashinfer_trtllm")
    deployment = deployment.asking(fp4_gemm_runner_backend=asked)

    def call(deployment: Deployment, rows: int) -> None:
        for k, n, _ in linear_sizes(deployment, "modelopt_fp4"):
            gemm_base.mm_fp4(
                *(meta(rows, k // 2, dtype=FP4), meta(n, k // 2, dtype=FP4).T),
                meta(-(-rows // 128) * 128, k // 16, dtype=FP8),
                meta(-(-n // 128) * 128, k // 16, dtype=FP8).T,
                *(meta(dtype=torch.float32), torch.bfloat16),
                backend=FP4_BACKENDS[asked],
                skip_check=True,
            )

    asked_for = serve(deployment, call, tuner)
    op = next(op for op in expected_keys(deployment) if op.op == "fp4_gemm")
    assert dict.fromkeys(op.keys, op.policy) == asked_for


_MODULES = (
    *("gemm_sm100_module_cutlass_mxfp8", "gemm_sm100_module_cutlass_fp4"),
    "trtllm_gen_gemm_module",
)
_RUNNERS = ("_cute_dsl_gemm_mxfp8_runner", "_cute_dsl_gemm_fp4_runner", "_cudnn_gemm_fp4_runner")


def _without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _MODULES:
        monkeypatch.setattr(gemm_base, f"gen_{name}", lambda **_: Specification())
    for name in ("get_gemm_sm100_module_cutlass_mxfp8", "get_gemm_sm100_module_cutlass_fp4"):
        monkeypatch.setattr(gemm_base, name, inspect.unwrap(getattr(gemm_base, name)))
    impl = inspect.unwrap(gemm_base._get_trtllm_gemm_module_impl)
    monkeypatch.setattr(gemm_base, "_get_trtllm_gemm_module_impl", impl)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(gemm_base, "get_compute_capability", lambda device: (10, 0))
    workspace = torch.empty(32 << 20, dtype=torch.uint8, device="meta")
    monkeypatch.setattr(gemm_base, "_get_cache_buf", lambda *_: workspace)
    for name in _RUNNERS:
        monkeypatch.setattr(gemm_base, name, _quiet(getattr(gemm_base, name)))


def _quiet(factory: Callable[..., Any]) -> Callable[..., Any]:
    def made(*told: Any) -> Any:
        runner = factory(*told)
        runner.forward = lambda inputs, **_: inputs[5]
        return runner

    return made


@pytest.mark.parametrize("release", ["0.5.12", "0.5.15"])
def test_trtllm_was_another_name_of_cutlass(release: str) -> None:
    moe = {"model_path": "Qwen3-30B-A3B"}
    by_trtllm, by_cutlass = (
        _asks(asked, release, **moe) for asked in ("flashinfer_trtllm", "flashinfer_cutlass")
    )
    keys = [[one for op in expected_keys(of) for one in op.keys] for of in (by_trtllm, by_cutlass)]
    assert keys[0] == keys[1] and any("CutlassMxfp8GemmRunner" in one for one in keys[0]), keys


@pytest.mark.parametrize(
    ("asked", "arch", "flags", "ends"),
    [
        ("flashinfer_trtllm", "sm120", {}, "no mxfp8 kernels for sm120"),
        ("flashinfer_cutedsl", "sm120", {}, "no mxfp8 kernels for sm120"),
        ("flashinfer_trtllm", "sm100", {"dtype": "float16"}, "bfloat16"),
        ("flashinfer_trtllm", "sm100", {"tp": 8, "model_path": "Qwen3-30B-A3B"}, None),
        ("flashinfer_trtllm", "sm100", {"tp": 32, "nnodes": 4}, "multiples of 256"),
        ("triton", "sm120", {}, None),
    ],
)
def test_where_there_are_none(asked: str, arch: str, flags: dict[str, Any], ends: str | None) -> None:
    deployment = _asks(asked, arch=arch, **flags)
    why = never_starts(deployment)
    assert (why is None) if ends is None else (why is not None and ends in why), why
    assert unplanned(deployment) == ()

"""FlashInfer's own Python on meta tensors: what is compiled or asks a GPU is replaced, and nothing else.

Replaced are the compiled kernel modules (the JIT specifications that would compile them) and the functions
that ask CUDA: for the compute capability, which trtllm module fits the GPU, whether it has dependent
launches; and the one that enters a device.
The tuner, its configurations, the runners, their key functions and the ops around them are FlashInfer's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from flashinfer.autotuner import AutoTuner
from flashinfer.fused_moe import core
from flashinfer.gemm import gemm_base

from runtime.autotune.installed import WAYS, file_key


class Module:
    """A compiled kernel module that computes nothing. FlashInfer writes the class's name into trtllm keys."""

    def init(self, *_: Any) -> Module:
        return self

    def __getattr__(self, name: str) -> Callable[..., list[torch.Tensor]]:
        return lambda *_, **__: [torch.empty(0)] * 4


class Specification:
    """What would compile a module: it gives this one."""

    def __init__(self, module: Module | None = None) -> None:
        self.module = module or Module()

    def build_and_load(self) -> Module:
        return self.module

    def get_library_path(self) -> str:  # until 0.6.18
        return ""

    def get_library_paths(self) -> list[str]:
        return []


class AskingTuner(AutoTuner):
    """Stock, and remembers the keys it was asked for with the profiling policy each would need."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, tuple[Any, ...] | None] = {}

    def search_cache(
        self,
        custom_op: str,
        runners: Any,
        input_shapes: Any,
        tuning_config: Any,
        inputs: Any = None,
        **more: Any,
    ) -> Any:
        extras = runners[0].get_cache_key_extras(inputs)
        key = self._get_cache_key(custom_op, runners[0], input_shapes, tuning_config, extras)
        policy = self._profiling_policy(tuning_config) if WAYS.keeps_policies else None
        self.asked[file_key(key)] = policy
        return super().search_cache(custom_op, runners, input_shapes, tuning_config, inputs=inputs, **more)


def asking_tuner(monkeypatch: pytest.MonkeyPatch) -> AskingTuner:
    tuner = AskingTuner()
    monkeypatch.setattr(AutoTuner, "_instance", tuner)
    return tuner


def cutlass_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(core, "gen_cutlass_fused_moe_sm90_module", lambda *_: Specification())
    return core.get_cutlass_fused_moe_module.__wrapped__("90")


def install_cutlass_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = cutlass_module(monkeypatch)
    monkeypatch.setattr(core, "get_cutlass_fused_moe_module", lambda arch: module)
    monkeypatch.setattr(core, "get_compute_capability", lambda device: (9, 0))
    monkeypatch.setattr(core, "device_support_pdl", lambda device: True)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())


class Meta:
    """A device of tensors without data."""

    torch_device = torch.device("meta")
    sm_major = 10


def install_trtllm_module(monkeypatch: pytest.MonkeyPatch, kernels: Module | None = None) -> None:
    specification = Specification(kernels)
    monkeypatch.setattr(core, "gen_trtllm_gen_fused_moe_sm100_module", lambda **_: specification)
    module = core._get_trtllm_moe_sm100_module_impl.__wrapped__(False)
    monkeypatch.setattr(core, "get_trtllm_moe_sm100_module", lambda: module)
    monkeypatch.setattr(core, "_device_support_moe_pdl", lambda device: True)


def install_gemm_module(monkeypatch: pytest.MonkeyPatch, kernels: Module | None = None) -> None:
    monkeypatch.setattr(gemm_base, "gen_gemm_module", lambda: Specification(kernels))
    monkeypatch.setattr(gemm_base, "get_gemm_module", gemm_base.get_gemm_module.__wrapped__)


def install_fp4_module(monkeypatch: pytest.MonkeyPatch, kernels: Module | None = None) -> None:
    for name in ("gemm_sm100_module_cutlass_fp4", "trtllm_gen_gemm_module"):
        monkeypatch.setattr(gemm_base, f"gen_{name}", lambda **_: Specification(kernels))
    for name in ("get_gemm_sm100_module_cutlass_fp4", "_get_trtllm_gemm_module_impl"):
        monkeypatch.setattr(gemm_base, name, inspect.unwrap(getattr(gemm_base, name)))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(gemm_base, "get_compute_capability", lambda device: (10, 0))
    workspace = torch.empty(32 << 20, dtype=torch.uint8, device="meta")
    monkeypatch.setattr(gemm_base, "_get_cache_buf", lambda *_: workspace)
    for name in ("_cute_dsl_gemm_fp4_runner", "_cudnn_gemm_fp4_runner"):
        monkeypatch.setattr(gemm_base, name, _quiet(getattr(gemm_base, name)))


def _quiet(factory: Callable[..., Any]) -> Callable[..., Any]:
    def made(*told: Any) -> Any:
        runner = factory(*told)
        runner.forward = lambda inputs, **_: inputs[5]
        return runner

    return made

"""Makes this machine look like one with eight GPUs of a kind, to code that asks torch, NVML or nvidia-smi.

Runs inside the oracle's own interpreter, before SGLang is imported. Packages that SGLang needs and that are
not here become empty ones whose every name is a mock.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.abc
import importlib.machinery
import os
import shutil
import sys
import tempfile
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

MIB = 1 << 20
GPU_COUNT = 8


@dataclass(frozen=True)
class Gpu:
    name: str
    capability: tuple[int, int]
    mib: int  # as nvidia-smi says
    processors: int


# The first five are asked unless others are named: an architecture each, and two sizes of one.
GPUS = {
    "H100": Gpu("NVIDIA H100 80GB HBM3", (9, 0), 81559, 132),
    "H200": Gpu("NVIDIA H200", (9, 0), 143771, 132),
    "B200": Gpu("NVIDIA B200", (10, 0), 183359, 148),
    "GB300": Gpu("NVIDIA GB300", (10, 3), 284208, 152),
    "RTX PRO 6000": Gpu("NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0), 97887, 188),
    "H20": Gpu("NVIDIA H20", (9, 0), 97871, 78),
    "B300": Gpu("NVIDIA B300 SXM6 AC", (10, 3), 275040, 148),
    "A100 80GB": Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 81920, 108),
    "L40S": Gpu("NVIDIA L40S", (8, 9), 46068, 142),
    "RTX 5090": Gpu("NVIDIA GeForce RTX 5090", (12, 0), 32607, 170),
}
USUAL_GPUS = tuple(GPUS)[:5]

# What a real install has and SGLang looks for; what it can live without stays missing.
INSTALLED_THERE = """
IPython anthropic blobfile cuda_tile cutlass deep_ep deep_gemm deepseek_recipe easydict flash_attn_4
flash_mla flashmla gguf grpc humming llguidance mistral_common modelscope mooncake nixl numba nvmath nvshmem
openai_harmony opentelemetry outlines outlines_core petit_kernel py_spy pynvml_utils quack remote_pdb
sentence_transformers sgl_flash_mla sgl_grpc sgl_kernel sglang_kernel sglang_router sglang_rust smg
smg_grpc_servicer tilelang tml_renderers torch_memory_saver torchvision triton_kernels uvloop vllm
watchfiles xgrammar
"""
COMPILED = ["flashinfer"]  # installed, but it wants a GPU when it is imported


class _StubClass(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


def _any_schema(cls: type, source: Any, handler: Any) -> Any:
    from pydantic_core import core_schema

    return core_schema.any_schema()


class StubModule(types.ModuleType):
    """Names in CamelCase are classes, so that they can be inherited from and annotated with."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        value: Any = MagicMock(name=f"{self.__name__}.{name}")
        if name[0].isupper() and not name.isupper():
            body = {"__module__": self.__name__, "__get_pydantic_core_schema__": classmethod(_any_schema)}
            body["__class_getitem__"] = classmethod(lambda cls, _: cls)
            body["__new__"] = lambda cls, *_, **__: object.__new__(cls)
            value = _StubClass(name, (), body)
        setattr(self, name, value)
        return value


class _StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = set(packages)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        module = StubModule(spec.name)
        module.__path__ = []
        module.__version__ = "999.0.0"
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def pretend(gpu: Gpu, missing: Sequence[str] = ()) -> None:
    """`missing`: packages beyond the usual ones that this release cannot be imported without."""
    _nvidia_smi(gpu)
    _torch(gpu)
    _kernels_may_be_missing()
    sys.meta_path.insert(0, _StubFinder(COMPILED))
    sys.meta_path.append(_StubFinder([*INSTALLED_THERE.split(), *missing]))
    _nvml(gpu)
    checks = "transformers.dependency_versions_check"  # of packages that other releases pin
    sys.modules[checks] = StubModule(checks)


def _nvidia_smi(gpu: Gpu) -> None:
    major, minor = gpu.capability
    folder = Path(tempfile.mkdtemp(prefix="nvidia-smi-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / "nvidia-smi"
    every = "for i in " + " ".join(map(str, range(GPU_COUNT)))
    script.write_text(
        "#!/bin/sh\n"
        f'case "$*" in\n *memory.total*) {every}; do echo {gpu.mib}; done;;\n'
        f" *compute_cap*) {every}; do echo {major}.{minor}; done;;\n"
        f' *) echo "{gpu.name}";;\nesac\n'
    )
    script.chmod(0o755)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def _torch(gpu: Gpu) -> None:
    import torch

    properties = types.SimpleNamespace(
        name=gpu.name, major=gpu.capability[0], minor=gpu.capability[1], total_memory=gpu.mib * MIB,
        multi_processor_count=gpu.processors, uuid="GPU-0", L2_cache_size=50 * MIB, warp_size=32,
        shared_memory_per_block_optin=232448, regs_per_multiprocessor=65536, is_integrated=False,
        gcnArchName="",
    )  # fmt: skip
    answers = {
        "is_available": True, "is_initialized": True, "device_count": GPU_COUNT, "current_device": 0,
        "get_device_capability": gpu.capability, "get_device_name": gpu.name, "memory_allocated": 0,
        "get_device_properties": properties, "mem_get_info": (int(gpu.mib * MIB * 0.985), gpu.mib * MIB),
        "set_device": None, "synchronize": None, "empty_cache": None, "init": None, "_lazy_init": None,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *args, _answer=answer, **kwargs: _answer)
    torch.version.cuda, torch.version.hip = "13.0", None
    torch._C._cuda_getCurrentRawStream = MagicMock()  # asked for as SGLang's FA4 is imported


def _kernels_may_be_missing() -> None:
    """A shape function for an operator of a stubbed package is registered nowhere, and nothing fails."""
    import torch

    register = torch.library.register_fake

    def tolerant(op: Any, func: Any = None, /, **options: Any) -> Any:
        def decorate(function: Any) -> Any:
            with contextlib.suppress(RuntimeError):
                register(op, function, **options)
            return function

        return decorate if func is None else decorate(func)

    torch.library.register_fake = tolerant


def _nvml(gpu: Gpu) -> None:
    try:
        import pynvml
    except ImportError:
        return
    answers = {
        "nvmlInit": None, "nvmlShutdown": None, "nvmlDeviceGetCount": GPU_COUNT,
        "nvmlDeviceGetHandleByIndex": 0,
        "nvmlDeviceGetHandleByPciBusId": 0, "nvmlDeviceGetCudaComputeCapability": gpu.capability,
        "nvmlDeviceGetName": gpu.name, "nvmlDeviceGetUUID": "GPU-0",
        "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=gpu.mib * MIB, free=gpu.mib * MIB, used=0),
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(pynvml, name, lambda *args, _answer=answer, **kwargs: _answer)

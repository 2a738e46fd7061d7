"""Lets a process compile for a GPU that it does not open: torch and Triton report the GPU, nothing runs."""

import re
import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

_SKIPPED = re.compile(r"_and_mul|sum_reduce|swiglu|^moe_sum")
_BUILT = re.compile(r"_and_mul")
_QUANTS = re.compile(r"quant")

building = False


def be_a(name: str, major: int, minor: int) -> None:
    """Make torch report this GPU. Call it before the server's modules are imported, which ask for the GPU."""
    import torch

    told = SimpleNamespace(name=name, major=major, minor=minor, shared_memory_per_block_optin=227 << 10)
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": name,
        "get_device_capability": (major, minor),
        "get_device_properties": told,
    }
    for function, answer in answers.items():
        setattr(torch.cuda, function, lambda *_, _answer=answer, **__: _answer)


def compile_only(layer: Any, major: int, minor: int) -> None:
    """From now on a forward of the layer on tensors without memory compiles its GEMMs and runs nothing."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import JITFunction, driver

    target = GPUTarget("cuda", 10 * major + minor, 32)
    driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: target, get_current_device=lambda: 0, get_current_stream=lambda _: 0
        )
    )
    for name, function in list(vars(layer).items()):
        if callable(function) and _SKIPPED.search(name):
            setattr(layer, name, _skipped(function if _BUILT.search(name) else None))
    run = JITFunction.run
    JITFunction.run = lambda *args, warmup, **named: run(*args, warmup=True, **named)
    kernels = vars(_module_of(layer.invoke_fused_moe_kernel))
    for name, function in list(kernels.items()):
        if callable(function) and not isinstance(function, JITFunction) and _QUANTS.search(name):
            kernels[name] = _quantised(name)
    align = vars(_module_of(layer.moe_align_block_size))
    for name in ("sgl_moe_align_block_size", "ops"):
        if name in align:
            align[name] = lambda *_, **__: None


def _skipped(build: Any) -> Any:
    """Replace a kernel that no configuration changes. SGLang builds some of these at their first call."""

    def skip(*args: Any, **named: Any) -> None:
        if build is not None and building:
            with suppress(Exception):  # it is built, and then fails on tensors without memory
                build(*args, **named)

    return skip


def _module_of(function: Any) -> Any:
    return sys.modules[function.__module__]


def _quantised(name: str) -> Any:
    """Return a function that gives the sizes and types of the real one: scales per group, row or tensor."""
    import torch

    kind = torch.int8 if "int8" in name else torch.float8_e4m3fn

    def quantise(tokens: Any, group: Any = None, *_: Any, **named: Any) -> Any:
        rows = tokens.shape[:-1]
        if "group" in name:
            scale = torch.empty((*rows, -(-tokens.shape[-1] // group)), device=tokens.device)
        elif "per_token" in name or named.get("use_per_token_if_dynamic"):
            scale = torch.empty((*rows, 1), device=tokens.device)
        else:
            scale = group if group is not None else torch.empty((1,), device=tokens.device)
        return torch.empty(tokens.shape, dtype=kind, device=tokens.device), scale

    return quantise

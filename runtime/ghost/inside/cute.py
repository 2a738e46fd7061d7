"""Leaves CuTe DSL kernels uncompiled: a compiled one is a callable that does nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtime.ghost.inside.hooks import after
from runtime.ghost.inside.stream import say
from runtime.ghost.inside.values import forget

_seen: set[str] = set()


class Compiled:
    """The result of compiling: it can be called, and has any attribute."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        forget(*args, *kwargs.values())

    def __getattr__(self, name: str) -> Compiled:
        if name.startswith("__"):
            raise AttributeError(name)
        return Compiled(f"{self._name}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def export_to_c(self, *place: Any, object_file_path: str = "", **kwargs: Any) -> None:
        """Make the object file, empty, because a cache moves it to its place."""
        folder, name = (*place, "", "")[:2]
        Path(object_file_path or f"{folder}/{name}.o").touch()


def _tell(name: str) -> None:
    """Report a kernel that a start would compile, once."""
    if name not in _seen:
        _seen.add(name)
        say("kernel", library="cute", name=name)


@after("cutlass.base_dsl.compiler")
def _compiler(module: Any) -> None:
    def compiled(self: Any, *args: Any, **kwargs: Any) -> Compiled:
        what = args[0] if args else self
        name = getattr(what, "__qualname__", type(what).__qualname__)
        _tell(f"{getattr(what, '__module__', '')}.{name}")
        return Compiled(name)

    module.CompileCallable.__call__ = compiled
    if hasattr(module.CompileCallable, "compile_to"):
        module.CompileCallable.compile_to = compiled


@after("flashinfer.jit.cute_dsl_core")
def _flashinfer(module: Any) -> None:
    def build_and_load(self: Any) -> Compiled:
        _tell(self.name)
        return Compiled(self.name)

    if hasattr(module, "JitSpecCuteDsl"):
        module.JitSpecCuteDsl.build_and_load = build_and_load
    if hasattr(module, "build_and_load_cute_dsl_kernel"):
        module.build_and_load_cute_dsl_kernel = _build_and_load


def _build_and_load(*args: Any, **kwargs: Any) -> Compiled:
    name = ".".join(str(one) for one in (*args, *kwargs.values()) if isinstance(one, str))
    _tell(name or "flashinfer")
    return Compiled(name)


@after("flashinfer.gemm.gemm_mm_fp4_cute_dsl")
def _precompile(module: Any) -> None:
    """Disable the pool of processes that would compile in advance."""
    if hasattr(module, "_run_mm_fp4_precompile_pool"):
        module._run_mm_fp4_precompile_pool = lambda *args, **kwargs: None


@after("cutlass.utils.hardware_info")
def _hardware(module: Any) -> None:
    """Answer the cluster limit, which is found by loading a kernel: the processors by the cluster's size."""
    import torch

    def most(self: Any, cluster_size: int = 1, *args: Any, **kwargs: Any) -> int:
        processors = torch.cuda.get_device_properties(0).multi_processor_count
        return processors // max(1, cluster_size)

    module.HardwareInfo.get_max_active_clusters = most

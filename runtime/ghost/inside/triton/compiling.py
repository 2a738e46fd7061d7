"""Lets Triton compile each kernel itself, up to the step that allocates its shared memory.

If Triton's compiler refuses a kernel, the start fails with its message. Shared memory is its own figure.
A failure because this machine lacks something makes the record inexact, and the start continues.
"""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from runtime.ghost.inside import honesty
from runtime.ghost.inside.hooks import after, around
from runtime.ghost.inside.library import library
from runtime.ghost.inside.stream import say
from runtime.ghost.inside.triton import kept, launches
from runtime.ghost.inside.triton.stand_in import StandIn

# A kernel's memory is allocated early in the last of these. The rest of this stage, LLVM and ptxas take two
# thirds of the time, and a start needs only registers and spills from them.
STAGES = ("ttir", "ttgir", "llir")
# Triton's metadata of a kernel: the attribute of the module that gives it, and its default.
ATTRIBUTES: dict[str, tuple[str, int | None]] = {
    "shared": ("ttg.shared", 0),
    "tmem_size": ("ttg.tensor_memory_size", None),
    "global_scratch_size": ("ttg.global_scratch_memory_size", 0),
    "global_scratch_align": ("ttg.global_scratch_memory_alignment", 1),
    "profile_scratch_size": ("ttg.profile_scratch_memory_size", 0),
    "profile_scratch_align": ("ttg.profile_scratch_memory_alignment", 1),
}
OURS = (ImportError, OSError, MemoryError, subprocess.SubprocessError)
WHY = "Triton could not compile this kernel here, so whether it compiles and its shared memory are not known"
_said: set[tuple[str, str]] = set()


class _Allocated(Exception):
    """A kernel's shared memory is allocated; the next step would lower it to LLVM."""


@after("triton.compiler.compiler")
def _compiler(module: Any) -> None:
    make_backend = module.make_backend
    module.make_backend = lambda target: _cut_short(make_backend(target))
    module.get_cache_manager = kept.Manager


@around("triton.compiler.compiler", "compile")
def _compile(compile: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
    before = sys.exc_info()[1]
    try:
        kernel = compile(source, *args, **kwargs)
    except Exception as error:
        missing = lacking(error, before)
        if missing is None:
            raise
        return _without(source, missing)
    _tell(source, kernel)
    if not launches.launching():
        library().appears("kernel")
    return kernel


def use(folder: str) -> None:
    """Keep Triton's results in this folder, and hash Triton itself now, while nothing waits for it."""
    kept.use(folder, "-".join(STAGES))
    hashed = getattr(sys.modules.get("triton.runtime.cache"), "triton_key", None)
    if hashed is not None:
        with suppress(Exception):  # each kernel will say why
            hashed()


def lacking(error: BaseException, before: BaseException | None = None) -> BaseException | None:
    """Return the error if something missing on this machine caused it, or None if Triton refused the kernel.

    `before` is the exception that was being handled when Triton was called.
    """
    cause: BaseException | None = error
    while cause is not None and cause is not before:
        if isinstance(cause, OURS):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None if _is_named(error) else error


def _is_named(error: BaseException) -> bool:
    """Whether the error is of Triton's own class, or the text of a compiler pass that failed."""
    kinds = (kind.__module__ for kind in type(error).__mro__)
    return any(kind.split(".")[0] == "triton" for kind in kinds) or "PassManager::run failed" in str(error)


def _without(source: Any, error: BaseException) -> StandIn:
    text = next(iter(str(error).splitlines()), "")[:300]
    honesty.inexact("kernel", name_of(source), f"{WHY}: {type(error).__name__}: {text}")
    return StandIn(source)


def name_of(source: Any) -> str:
    """Return a kernel's module and function, or the file that Triton was given instead."""
    function = getattr(getattr(source, "fn", None), "fn", None)
    if function is None:
        return str(getattr(source, "name", source))
    return f"{function.__module__}.{function.__qualname__}"


def _tell(source: Any, kernel: Any) -> None:
    """Report a kernel that a start compiles, once for each specialization."""
    name, told = name_of(source), kernel.metadata
    if (name, kernel.hash) not in _said:
        _said.add((name, kernel.hash))
        target = f"{told.target.backend}:{told.target.arch}"
        library = "inductor" if name.startswith("torch._inductor.") else "triton"
        say("kernel", library=library, name=name, digest=kernel.hash, target=target, shared=told.shared)


def _cut_short(backend: Any) -> Any:
    """Return a backend that stops when a kernel's memory is allocated; its binary is empty."""
    add_stages = backend.add_stages

    def add(stages: dict[str, Callable[..., Any]], *args: Any) -> None:
        add_stages(stages, *args)
        for name in set(stages) - set(STAGES):
            del stages[name]
        if "llir" in stages:
            stages["llir"] = _allocate(stages["llir"])
        stages[backend.binary_ext] = lambda source, metadata: b""

    backend.add_stages = add
    return backend


def _allocate(stage: Callable[..., Any]) -> Callable[..., Any]:
    """Return the stage that lowers a kernel to LLVM, stopped when its memory is allocated."""

    def run(made: Any, metadata: dict[str, Any]) -> Any:
        compiler: Any = sys.modules[stage.__module__]
        passes, name = compiler.nvidia.passes.ttgpuir, made.get_entry_func_name()
        real = passes.add_to_llvmir

        def stop(manager: Any, *args: Any) -> None:
            try:
                manager.run(made, "make_llir")
            except TypeError:  # Triton 3.5 gives its passes no name
                manager.run(made)
            raise _Allocated

        passes.add_to_llvmir = stop
        try:
            return stage(made, metadata)
        except _Allocated:
            metadata["name"] = name
            _describe(made, metadata)
            return made
        finally:
            passes.add_to_llvmir = real

    return run


def _describe(made: Any, metadata: dict[str, Any]) -> None:
    for name, (attribute, otherwise) in ATTRIBUTES.items():
        value = made.get_int_attr(attribute)
        metadata[name] = otherwise if value is None else value
    if (warps := made.get_int_attr("ttg.total-num-warps")) is not None:
        metadata["num_warps"] = warps

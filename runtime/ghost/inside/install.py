"""Prepares a server's Python, before torch is imported, for a GPU that is not there."""

from __future__ import annotations

import os
from importlib import import_module

from runtime.ghost.inside import honesty, hooks, library, modules, small
from runtime.ghost.inside.triton import compiling

# Each has hooks on modules of the server's environment, which run when those are imported.
ROOMS = ("triton.driver", "triton.launches", "cute", "cubins", "bindings", "compiled", "benchmarks")


def install(lib_path: str, small_values: bool, halves: dict[str, str]) -> None:
    """Watch imports, listen to the library, and use a host half where a module was not built."""
    hooks.install()
    lib = library.open_library(lib_path)
    os.environ["GHOST_CUDA"] = lib.cuda()  # the release that our `nvcc` names
    honesty.listen(lib)
    modules.hand_in(halves)
    for room in ROOMS:
        import_module(f"runtime.ghost.inside.{room}")
    small.allow(small_values)


def imported(kernels: str) -> None:
    """The server was imported. What Triton makes of each kernel is kept in the folder `kernels`."""
    compiling.use(kernels)

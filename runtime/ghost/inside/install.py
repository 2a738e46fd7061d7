"""Prepares a server's Python, before torch is imported, for a simulated GPU."""

import os
from importlib import import_module

from runtime.ghost.inside import honesty, hooks, library, modules, small
from runtime.ghost.inside.triton import compiling

# Modules with hooks, which run when modules of the server's environment are imported.
ROOMS = ("triton.driver", "triton.launches", "cute", "cubins", "bindings", "compiled", "benchmarks")


def install(lib_path: str, small_values: bool, halves: dict[str, str]) -> None:
    """Watch imports, listen to the library, and use a host half for a module that was not built."""
    hooks.install()
    lib = library.open_library(lib_path)
    os.environ["GHOST_CUDA"] = lib.cuda()  # the release that our `nvcc` names
    honesty.listen(lib)
    modules.hand_in(halves)
    for room in ROOMS:
        import_module(f"runtime.ghost.inside.{room}")
    small.allow(small_values)


def imported(kernels: str) -> None:
    """Keep what Triton makes of each kernel in the folder `kernels`. Called after the server's import."""
    compiling.use(kernels)

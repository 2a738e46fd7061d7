"""Replaces what Triton compiles with the machine's C compiler to reach a GPU by the ghost's answers."""

import ctypes
from typing import Any

from runtime.ghost.inside.hooks import after
from runtime.ghost.inside.library import library

# Triton's names, and their numbers for `cuDeviceGetAttribute`.
PROPERTIES = {
    "max_shared_mem": 97,
    "max_num_regs": 82,
    "multiprocessor_count": 16,
    "warpSize": 10,
    "sm_clock_rate": 13,
    "mem_clock_rate": 36,
    "mem_bus_width": 37,
}
REGISTERS, SPILLS, THREADS = 64, 0, 1024  # of a kernel that was not assembled by ptxas


class Compiled:
    """Stands for a file compiled by Triton: its helpers for the driver, and the launcher of a kernel."""

    PyCUtensorMap = type(None)

    @staticmethod
    def get_device_properties(device: int) -> dict[str, int]:
        return {name: _attribute(number, device) for name, number in PROPERTIES.items()}

    @staticmethod
    def load_binary(*args: Any) -> tuple[int, int, int, int, int]:
        """Return a module, its function, and a function's registers, spills and threads."""
        return 1, 1, REGISTERS, SPILLS, THREADS

    @staticmethod
    def launch(x: int, y: int, z: int, *args: Any) -> None:
        if x * y * z > 0:
            library().launched()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def _attribute(number: int, device: int) -> int:
    value = ctypes.c_int()
    status = library().runtime("cuDeviceGetAttribute")(ctypes.byref(value), number, device)
    if status:
        raise RuntimeError(f"Triton Error [CUDA]: {status}")
    return value.value


@after("triton.backends.nvidia.driver")
def _driver(module: Any) -> None:
    for name in ("compile_module_from_src", "compile_module_from_file"):  # the second since Triton 3.8
        setattr(module, name, lambda *args, **kwargs: Compiled())

"""Why tuning ended without results. Running out of memory is never taken for a tactic that failed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class AutotuneError(RuntimeError):
    """Tuning cannot go on; the message says where, why and what to do."""


class TuningOutOfMemory(AutotuneError):
    """Memory ran out while a tactic was prepared or measured: its time is unknown, not infinite."""


class WorkersDisagree(AutotuneError):
    """Workers that search together look up different keys or know different tactics."""


_OUT_OF_MEMORY = re.compile(
    r"out of memory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|bad_alloc|can't allocate memory", re.I
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out. torch has a type for it; kernels behind an FFI say so only in their message."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error)) is not None


def first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


@contextmanager
def memory_watched(where: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise TuningOutOfMemory(
            f"out of memory in {where}: free memory on the device, or tune fewer rows ({first_line(error)})"
        ) from error

"""Findings that do not make a record inexact: each with its reason and the real start that proves it.

A proof is a start measured on an H200 that the ghost predicts exactly although it had this finding: every
value, or every value except 34 KiB of gpt-oss. An entry names one function of one kind of module, or one
kernel; never a whole library, and never a value that decides a branch. A function whose source shows that it
only launches kernels needs no entry: see sources/verdict.py.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple


class Harmless(NamedTuple):
    kind: str
    name: str  # MODULE.FUNCTION; a star stands for what it was built for, and for a digest of its source
    why: str
    proof: str


GRID = (
    "its size becomes the number of blocks of a launch; whether it is above zero follows from shared memory"
    " and threads, which are known"
)
REGISTERS = "it tells tvm-ffi a class whose objects hold pointers; it allocates nothing"

HARMLESS = (
    Harmless("module", "sgl_kernel_jit_communicator_*.register_once", REGISTERS, "mistral-tp2"),
    Harmless("module", "sgl_kernel_jit_cuda_ipc_*.register_once", REGISTERS, "mistral-tp2"),
    Harmless(
        "stub",
        "cuMemExportToShareableHandle",
        "the handle is for peers, which are not there; the memory it names was counted when it was made",
        "mistral-tp2",
    ),
    Harmless(
        "module",
        "trtllm_utils.delay_kernel",
        "it launches a kernel that waits, between timings that mean nothing here",
        "qwen30-cutlass",
    ),
    Harmless(
        "attribute", "occupancy of _ZN7cutlass6KernelINS_4gemm6kernel9MoeFCGemm*", GRID, "qwen30-cutlass"
    ),
    Harmless(
        "attribute",
        "occupancy of _ZN9fused_moe10run_globalINS_21Fused_Moe_Kernel_sm80*",
        GRID,
        "qwen30-cutlass",
    ),
)


@cache
def is_harmless(kind: str, name: str) -> bool:
    """Whether a finding is in the list."""
    return any(one.kind == kind and fnmatchcase(name, one.name) for one in HARMLESS)

"""Findings that do not make a record inexact: each with its reason and the real start that proves it.

A proof is a start measured on an H200 that the ghost predicts exactly although it had this finding: every
value, or every value except 34 KiB of gpt-oss. An entry names one function of one kind of module, or one
kernel; never a whole library, and never a value that decides a branch. A function whose source shows that it
only launches kernels needs no entry: see sources/verdict.py.
"""

from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple


class Harmless(NamedTuple):
    kind: str
    name: str  # MODULE.FUNCTION; a star stands for what it was built for, and for a digest of its source
    why: str
    proof: str


GRID = "it becomes the number of blocks of a launch; it is above zero as shared memory and threads are known"
REGISTERS = "it tells tvm-ffi a class whose objects hold pointers; it allocates nothing"
PEERS = "the handle is for peers, which are not there; the memory it names was counted when it was made"
WAITS = "it launches a kernel that waits, between timings that mean nothing here"
TWO, MOE = "mistral-tp2", "qwen30-cutlass"

HARMLESS = (
    Harmless("module", "sgl_kernel_jit_communicator_*.register_once", REGISTERS, TWO),
    Harmless("module", "sgl_kernel_jit_cuda_ipc_*.register_once", REGISTERS, TWO),
    Harmless("stub", "cuMemExportToShareableHandle", PEERS, TWO),
    Harmless("module", "trtllm_utils.delay_kernel", WAITS, MOE),
    Harmless("attribute", "occupancy of _ZN7cutlass6KernelINS_4gemm6kernel9MoeFCGemm*", GRID, MOE),
    Harmless("attribute", "occupancy of _ZN9fused_moe10run_globalINS_21Fused_Moe_Kernel_sm80*", GRID, MOE),
)


@cache
def is_harmless(kind: str, name: str) -> bool:
    """Whether a finding is in the list."""
    return any(one.kind == kind and fnmatchcase(name, one.name) for one in HARMLESS)

"""What a GPU holds that torch cannot count: calibrated bytes, each with where it was read.

A prediction adds them to what the allocator model counts. `sgl-tune mem-report --calibrate` measures those
that one GPU can tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from runtime.server.units import MIB


@dataclass(frozen=True, slots=True)
class Constant:
    """`doubt`: how many bytes more or less it may be; a tenth where None."""

    bytes: int
    source: str
    doubt: int | None = None


@dataclass(frozen=True, slots=True)
class GpuConstants:
    """`outside` names what a start claims, step by step; `nccl` is one NVLink communicator by its ranks.

    What has a formula is claimed with its bytes.
    """

    gemm_workspace: Constant
    outside: Mapping[str, Constant]
    nccl: Mapping[int, Constant] = field(default_factory=dict)

    def claimed(self, what: str) -> Constant:
        """By its name in `outside`; `nccl:8`, whose bytes grow with the peers between measured sizes; or by
        the name of a formula and its result, such as `DeepEP's workspace:33554432`."""
        name, _, told = what.partition(":")
        if name in FORMULAS:
            return replace(FORMULAS[name], bytes=int(told))
        if name != "nccl":
            return self.outside[what]
        ranks = int(told)
        if ranks < 2 or not self.nccl:
            return Constant(0, "one rank needs none")
        nearest = min(self.nccl, key=lambda known: abs(known - ranks))
        known = self.nccl[nearest]
        return Constant(known.bytes * (min(ranks, 8) - 1) // (nearest - 1), known.source)


_OWN = "two starts of this runtime on one H200, torch 2.11+cu130: "
_START = "stock SGLang 0.5.17 on one H200, torch 2.11+cu130: "
_H200 = GpuConstants(
    gemm_workspace=Constant(32 * MIB, "torch's default cuBLAS workspace on compute capability 9 and 10"),
    outside={
        "context": Constant(722_272_256, _START + "total - free - reserved before the weights are loaded"),
        "cublas": Constant(69_206_016, _OWN + "growth of the same at the first GEMM"),
        "kernels": Constant(94_371_840, _OWN + "growth of the same in the first forward, the same in both"),
        "graph node": Constant(4_810, _OWN + "growth during capture, over the 118634 kernels captured"),
    },
    nccl={8: Constant(2_158_221_066, "sgl-project/sglang#11716, 8 x H200: 'Init torch distributed ends'")},
)
_DEEPEP = "deepseek-ai/DeepEP at 79bbb54, "
FORMULAS: Mapping[str, Constant] = {
    "DeepEP's NVLink buffer": Constant(0, _DEEPEP + "get_nvl_buffer_size_hint of csrc/config.hpp", 0),
    "DeepEP's workspace": Constant(0, _DEEPEP + "csrc/configs.cuh", 0),
    "DeepEP's NVSHMEM heap": Constant(
        0,
        _DEEPEP + "its size hints in units of 512 MiB and one for NVSHMEM itself; deepseek-ai/DeepEP#510 saw "
        "3.1 GiB where 2.5 are told",
        640 * MIB,
    ),
}
CONSTANTS: Mapping[str, GpuConstants] = {"sm90": _H200, "sm100": _H200}


def constants_for(arch: str) -> GpuConstants:
    """An architecture nobody measured is taken to be like the nearest that somebody did."""
    return CONSTANTS.get(arch, _H200)

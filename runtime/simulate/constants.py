"""What a GPU holds that torch cannot count: calibrated bytes, each with where it was read.

A prediction adds them to what the allocator model counts. `sgl-tune mem-report --calibrate` measures those
that one GPU can tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.server.units import MIB


@dataclass(frozen=True, slots=True)
class Constant:
    bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class GpuConstants:
    """`outside` names what a start claims, step by step; `nccl` is one NVLink communicator by its ranks."""

    gemm_workspace: Constant
    outside: Mapping[str, Constant]
    nccl: Mapping[int, Constant] = field(default_factory=dict)

    def claimed(self, what: str) -> Constant:
        """By its name in `outside`, or `nccl:8`, whose bytes grow with the peers between measured sizes."""
        if not what.startswith("nccl:"):
            return self.outside[what]
        ranks = int(what.removeprefix("nccl:"))
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
CONSTANTS: Mapping[str, GpuConstants] = {"sm90": _H200, "sm100": _H200}


def constants_for(arch: str) -> GpuConstants:
    """An architecture nobody measured is taken to be like the nearest that somebody did."""
    return CONSTANTS.get(arch, _H200)

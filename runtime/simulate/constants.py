"""Memory of a GPU that torch cannot count: calibrated bytes, each with its source.

A prediction adds them to what the allocator model counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from runtime.server.units import MIB

_MOST_MEASURED = 4  # ranks


@dataclass(frozen=True, slots=True)
class Constant:
    """Calibrated bytes. `doubt` is their possible error in bytes; None means a tenth."""

    bytes: int
    source: str
    doubt: int | None = None


@dataclass(frozen=True, slots=True)
class GpuConstants:
    """One GPU's constants. `outside` has the memory of each step; `nccl` a communicator's by its ranks.

    `has_peers` is false for a virtual rank, whose peers do not exist.
    """

    gemm_workspace: Constant
    outside: Mapping[str, Constant]
    nccl: Mapping[int, Constant] = field(default_factory=dict)
    has_peers: bool = True

    def claimed(self, what: str) -> Constant:
        """Return the constant `what` of `outside`, for a group's ranks if it says so (`nccl message:8`).
        `nccl:8` lies on a line through the measured sizes."""
        name, _, told = what.partition(":")
        if not self.has_peers and name in OF_PEERS:
            return Constant(0, "its peers are arithmetic")
        if told and name == "nccl":
            return self._communicator(int(told))
        return _of_ranks(self.outside[name], int(told or 1))

    def _communicator(self, ranks: int) -> Constant:
        if not self.nccl:
            return Constant(0, "not known")
        if ranks in self.nccl:
            return self.nccl[ranks]
        known = sorted(self.nccl)
        few, many = next((pair for pair in pairwise(known) if ranks < pair[1]), (known * 2)[-2:])
        at = {size: self.nccl[size].bytes for size in (few, many)}
        slope = (at[many] - at[few]) // (many - few) if many > few else 0
        told = max(0, at[few] + slope * (ranks - few))
        nearest = min(self.nccl, key=lambda size: abs(size - ranks))
        of = ", ".join(str(size) for size in sorted({few, many}))
        return Constant(told, f"{self.nccl[nearest].source}; on a line through {of} ranks", told // 2)


def _of_ranks(of: Constant, ranks: int) -> Constant:
    if ranks <= _MOST_MEASURED:
        return of
    return Constant(of.bytes, f"{of.source}; taken for {ranks} ranks, which were not measured", of.bytes // 2)


_OWN = "two starts of this runtime on one H200: "
_START = "a stock SGLang on one H200: "
_STARTS = "a stock SGLang on 2 and 4 H200s of one host: "
_PUBLIC = "sgl-project/sglang#11716, 8 x H200: 2.01 GiB in 'Init torch distributed ends', less the others"
_FIRST_FORWARD = "growth of the same in the first forward, the same in both"
_FIRST = _STARTS + "growth at a group's first collective"
_CAPTURED = _STARTS + "growth while graphs are captured, "
# Architectures that were not measured are assumed to be like this one.
H200 = GpuConstants(
    gemm_workspace=Constant(32 * MIB, "torch's default cuBLAS workspace on compute capability 9 and 10"),
    outside={
        "context": Constant(649_658_368, _START + "total - free - reserved after init_torch_distributed"),
        "torch kernels": Constant(73_400_320, _START + "growth of the same when tensors are first filled"),
        "cublas": Constant(69_206_016, _OWN + "growth of the same at the first GEMM"),
        "kernels": Constant(94_371_840, _OWN + _FIRST_FORWARD),
        "graph": Constant(99_000, _START + "growth while prefills are captured, over 650 to 3770 pieces"),
        "graph node": Constant(3_700, _START + "growth while decodes are captured, over their kernels"),
        "nccl": Constant(288 * MIB, _STARTS + "its first communicator less a later one", 64 * MIB),
        "nccl graph": Constant(99_000, _CAPTURED + "of those with messages by NCCL"),
        "nccl message": Constant(130_000, _CAPTURED + "over 256 to 3760 messages by NCCL"),
    },
    nccl={
        2: Constant(544 * MIB, _FIRST, 64 * MIB),
        4: Constant(784 * MIB, _FIRST, 64 * MIB),
        8: Constant(1_680 * MIB, _PUBLIC, 560 * MIB),
    },
)
OF_PEERS = ("nccl", "nccl graph", "nccl message")

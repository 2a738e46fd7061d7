"""Triton compiles in the server's own process, where no compiler is seen. The files that each stage of a
kernel left in its folder tell when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sgl_tune.start_report.compilers import Turn
from sgl_tune.start_report.written import folders_of, fresh_files

_STAGES = (".source", ".ttir", ".ttgir", ".llir", ".ptx", ".cubin")
_STORES = ("triton", "inductor")  # which keeps Triton's below it
_MOST_KERNELS = 5_000


def kernel_turns(moment: float, environment: Mapping[str, str]) -> list[Turn]:
    """From a kernel's first stage to its last. What Triton does before the first is not told."""
    folders = {folder for store in _STORES for folder in folders_of(store, environment)}
    kernels: dict[str, tuple[float, float]] = {}
    for place, at in _stages(folders, moment):
        if place in kernels or len(kernels) < _MOST_KERNELS:
            begin, end = kernels.get(place, (at, at))
            kernels[place] = min(begin, at), max(end, at)
    return [Turn("Triton", "", begin, end) for begin, end in kernels.values() if begin < end]


def _stages(folders: set[str], moment: float) -> Iterator[tuple[str, float]]:
    for folder in folders:
        for place, name, status in fresh_files(folder, moment):
            if name.endswith(_STAGES):
                yield place, status.st_mtime

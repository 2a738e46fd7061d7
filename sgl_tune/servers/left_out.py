"""Which of a release's packages a server without a GPU needs: not the libraries that the ghost stands in for,
and a compiler of the very CUDA release that its torch was built for."""

from __future__ import annotations

import re
from collections.abc import Mapping

_LEFT_OUT = re.compile(
    r"nvidia-(?:cublas|cuda-cupti|cuda-nvrtc|cudnn|cufft|cufile|curand|cusolver|cusparse|cusparselt|nccl"
    r"|nvjitlink|nvshmem)(?:-cu\d+)?"
)
_RUNTIME = re.compile(r"nvidia-cuda-runtime(-cu\d+)?")
_COMPILER = {
    "": ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-cccl"),
    # Its package for CUDA 12 has the assembler, the device compiler and headers, and no nvcc.
    "-cu12": ("nvidia-cuda-nvcc-cu12", "nvidia-cuda-cccl-cu12"),
}


def is_left_out(name: str) -> bool:
    """Whether only the headers of this package are kept."""
    return _LEFT_OUT.fullmatch(name) is not None


def compiler_for(resolved: Mapping[str, str]) -> list[str]:
    """Requirements of the compiler that fits the CUDA headers among these packages (name: version). pip by
    itself takes the newest of each part, and parts of two CUDA releases do not compile together."""
    for name, version in resolved.items():
        match = _RUNTIME.fullmatch(name)
        if match:
            release = ".".join(version.split(".")[:2])
            return [f"{part}=={release}.*" for part in _COMPILER.get(match[1] or "", ())]
    return []

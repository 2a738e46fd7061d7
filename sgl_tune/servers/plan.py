"""The plan of `server add`: every wheel of a release, as pip chooses them, with its size."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sgl_tune.reading import bounded_bytes, object_of
from sgl_tune.servers.installed import normal
from sgl_tune.writing import write_text

_LARGEST = 32 << 20
_CHUNK_BYTES, _CHUNK_WHEELS = 400_000_000, 60
_LEFT_OUT = re.compile(
    r"nvidia-(?:cublas|cuda-cupti|cuda-nvrtc|cudnn|cufft|cufile|curand|cusolver|cusparse|cusparselt|nccl"
    r"|nvjitlink|nvshmem)(?:-cu\d+)?"
)
_RUNTIME = re.compile(r"nvidia-cuda-runtime(-cu\d+)?")
_COMPILER = {
    "": ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-cccl"),
    # NVIDIA's package for CUDA 12 has the assembler, the device compiler and headers, but no nvcc.
    "-cu12": ("nvidia-cuda-nvcc-cu12", "nvidia-cuda-cccl-cu12"),
}


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel. `size`: of the file. `unpacked`: of its contents. `headers_only`: its libraries are left
    out."""

    name: str
    version: str
    url: str
    sha256: str
    size: int = 0
    unpacked: int = 0
    headers_only: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The wheels of a release. `python`: the Python version they are for."""

    release: str
    python: str
    wheels: tuple[Wheel, ...]

    @property
    def kept(self) -> list[Wheel]:
        return [wheel for wheel in self.wheels if not wheel.headers_only]

    @property
    def left_out(self) -> list[Wheel]:
        return [wheel for wheel in self.wheels if wheel.headers_only]


def chosen_by_pip(report: Path) -> list[Wheel]:
    """Return the wheels in pip's report; raise ValueError if one of them is not described exactly."""
    found = []
    for one in object_of(bounded_bytes(report, _LARGEST))["install"]:
        told, download = one["metadata"], one["download_info"]
        digest = download.get("archive_info", {}).get("hashes", {}).get("sha256")
        name = normal(told["name"])
        if not digest:
            raise ValueError(f"the index gives no sha256 of {name} {told['version']}")
        is_left_out = _LEFT_OUT.fullmatch(name) is not None
        found.append(Wheel(name, told["version"], download["url"], digest, headers_only=is_left_out))
    return found


def chunks(wheels: Sequence[Wheel]) -> Iterator[list[Wheel]]:
    """Yield groups of wheels that are installed one after the other, so that not all files lie on the disk
    twice."""
    chunk: list[Wheel] = []
    for wheel in wheels:
        if chunk and (len(chunk) == _CHUNK_WHEELS or sum(one.size for one in [*chunk, wheel]) > _CHUNK_BYTES):
            yield chunk
            chunk = []
        chunk.append(wheel)
    if chunk:
        yield chunk


def write_plan(path: Path, plan: Plan) -> None:
    write_text(path, json.dumps(asdict(plan)))


def read_plan(path: Path) -> Plan | None:
    """Return the plan of an earlier attempt, or None if none can be continued."""
    try:
        held: dict[str, Any] = object_of(bounded_bytes(path, _LARGEST))
        wheels = tuple(Wheel(**wheel) for wheel in held["wheels"])
        return Plan(str(held["release"]), str(held["python"]), wheels)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def compiler_for(resolved: Mapping[str, str]) -> list[str]:
    """Return requirements of the compiler that fits the CUDA headers among these packages (name: version).
    pip alone would take the newest of each part, and parts of two CUDA releases do not compile together."""
    for name, version in resolved.items():
        match = _RUNTIME.fullmatch(name)
        if match:
            release = ".".join(version.split(".")[:2])
            return [f"{part}=={release}.*" for part in _COMPILER.get(match[1] or "", ())]
    return []

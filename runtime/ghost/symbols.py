"""Which functions of NVIDIA's libraries a server needs, read from the libraries that import them.

NVIDIA's own libraries are not read: they may be absent, and the ghost's are found before them anyway.
"""

import os
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

from runtime.ghost.library import Library, NotALibrary

# The prefixes of each library's functions, for symbols without a version. The first match is used.
_PREFIXES = {
    "libcudart": r"_{0,2}cuda[A-Z]",
    "libcublasLt": r"cublasLt",
    "libcublas": r"cublas",
    "libnccl": r"p?nccl[A-Z]",
    "libcudnn": r"cudnn",
    "libcusparseLt": r"cusparseLt",
    "libcusparse": r"cusparse",
    "libcusolverMg": r"cusolverMg",
    "libcusolver": r"cusolver",
    "libcufft": r"cufft",
    "libcurand": r"curand",
    "libnvrtc": r"nvrtc",
    "libnvJitLink": r"_{0,2}nvJitLink",
    "libcufile": r"cuFile",
    "libnvshmem_host": r"nvshmem",
    "libcupti": r"cupti",
    "libnvperf_host": r"NVPW",
    "libcudss": r"cudss",
    "libnvjpeg": r"nvjpeg",
    "libnvToolsExt": r"nvtx",
    "libnvidia-ml": r"nvml",
    "libcuda": r"cu[A-Z]",
}
_BEGINS = {name: re.compile(pattern) for name, pattern in _PREFIXES.items()}
_SONAME = re.compile(rf"({'|'.join(map(re.escape, _PREFIXES))})\.so(\.\d+)?")
_COPY = re.compile(r"libcudart[.-][0-9a-f]{8}\.so\.\d+")  # a wheel's own copy, renamed when it was packed

# Libraries that are opened by name: by Triton, pynvml, `cuda.bindings`, static runtimes.
_OPENED = ("libcuda.so.1", "libnvidia-ml.so.1")
# Files whose text names functions that are looked up in an opened library.
_NAMED_IN = (
    "pynvml.py",
    "triton/backends/nvidia/driver.c",
    "triton/backends/nvidia/driver.py",
    "sglang/srt/distributed/device_communicators/cuda_wrapper.py",
    "sglang/srt/distributed/device_communicators/pynccl_wrapper.py",
    "flashinfer/comm/cuda_ipc.py",
)
_NAME = re.compile(r"\b(?:cu[A-Z]|cuda[A-Z]|nccl[A-Z]|nvml[A-Z])\w+\b")
_ELF = b"\x7fELF"


class NoCuda(ValueError):
    """This environment has no torch that was built for CUDA. The message is one line."""


@dataclass(frozen=True)
class Needed:
    """One library that must exist: each function with the version under which it is imported, or None."""

    soname: str
    functions: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class Needs:
    """The libraries to build. `versions` are the version numbers that the libraries report."""

    major: int
    libraries: tuple[Needed, ...]
    versions: tuple[tuple[str, int], ...]


def needs(folders: Sequence[Path]) -> Needs:
    """Return what the environment with these package folders needs. Raises NoCuda if torch has no CUDA."""
    site_packages = next((one for one in folders if (one / "torch").is_dir()), folders[0])
    major = _cuda_major(site_packages)
    found: dict[str, set[tuple[str, str | None]]] = {soname: set() for soname in _OPENED}
    loose: set[str] = set()
    for folder in folders:
        for path in _shared_objects(folder):
            _read(path, found, loose)
        for relative in _NAMED_IN:
            loose.update(_NAME.findall(_text_of(folder / relative)))
    _assign(loose, found, major)
    libraries = tuple(
        Needed(soname, tuple(sorted(functions, key=lambda one: (one[0], one[1] or ""))))
        for soname, functions in sorted(found.items())
    )
    return Needs(major, libraries, _versions(site_packages, major))


def _cuda_major(site_packages: Path) -> int:
    library = site_packages / "torch" / "lib" / "libc10_cuda.so"
    if not (site_packages / "torch").is_dir():
        raise NoCuda(f"{site_packages} has no torch")
    if not library.is_file():
        raise NoCuda(f"{site_packages} has a torch without CUDA ({library.name} is missing)")
    with opened_library(library) as opened:
        for name in opened.needed if opened else ():
            if name.startswith("libcudart.so."):
                return int(name.rpartition(".")[2])
    raise NoCuda(f"{library} is not linked to libcudart.so: this torch brings a CUDA runtime of its own")


@contextmanager
def opened_library(path: Path) -> Iterator[Library | None]:
    """Yield the library in this file while it is open, or None if it is not a 64-bit library."""
    with path.open("rb") as file:
        if file.read(4) != _ELF:
            yield None
            return
        with mmap(file.fileno(), 0, access=ACCESS_READ) as image:
            yield Library(image)


def _shared_objects(site_packages: Path) -> Iterator[Path]:
    """Yield every shared object of a folder except NVIDIA's own, which the ghost replaces. A package may be a
    link; no other links are followed."""
    tops = [site_packages]
    if site_packages.is_dir():
        found = (one for one in sorted(site_packages.iterdir()) if one.name != "nvidia")
        tops += (one for one in found if one.is_symlink() and one.is_dir())
    for top in tops:
        for folder, names, files in os.walk(top):
            if Path(folder) == site_packages and "nvidia" in names:
                names.remove("nvidia")
            names[:] = sorted(
                name for name in names if name != "__pycache__" and not name.endswith(".dist-info")
            )
            for name in sorted(files):
                if ".so" in name and (name.endswith(".so") or ".so." in name):
                    yield Path(folder, name)


def _read(path: Path, found: dict[str, set[tuple[str, str | None]]], loose: set[str]) -> None:
    """Add the imports of one library, to `found` if a version names the library, else to `loose`."""
    try:
        with opened_library(path) as library:
            if library is None:
                return
            linked = [name for name in library.needed if _SONAME.fullmatch(name) or _COPY.fullmatch(name)]
            for soname in linked:
                found.setdefault(soname, set())
            if not linked:
                return
            for symbol in library.undefined():
                version = library.version_of(symbol)
                if version and version.library in found:
                    found[version.library].add((symbol.name, version.name))
                elif _NAME.fullmatch(symbol.name) or any(one.match(symbol.name) for one in _BEGINS.values()):
                    loose.add(symbol.name)
    except (OSError, NotALibrary, struct.error, IndexError, ValueError):
        return  # nobody can load it, so nobody calls what it imports


def _assign(names: set[str], found: dict[str, set[tuple[str, str | None]]], major: int) -> None:
    """Add each name without a version to the library that its prefix belongs to."""
    by_name = {match[1]: soname for soname in sorted(found) if (match := _SONAME.fullmatch(soname))}
    by_name["libcudart"] = f"libcudart.so.{major}"
    for name in names:
        library = next((library for library, begins in _BEGINS.items() if begins.match(name)), None)
        if library in by_name:
            soname = by_name[library]
            functions = found.setdefault(soname, set())
            if not any(name == known for known, _ in functions):
                functions.add((name, soname if library == "libcudart" else None))


def _versions(site_packages: Path, major: int) -> tuple[tuple[str, int], ...]:
    """Return the CUDA version that torch was built for, and those that its metadata pins, or 0."""
    text = _text_of(site_packages / "torch" / "version.py")
    cuda = re.search(r"^cuda\b.*'(\d+)\.(\d+)'", text, re.MULTILINE)
    minor = int(cuda[2]) if cuda and int(cuda[1]) == major else 0
    pinned: dict[str, str] = {}
    for metadata in sorted(site_packages.glob("torch-*.dist-info/METADATA")):
        pinned.update(
            re.findall(r"^Requires-Dist: nvidia-(\w+?)-cu\d+ ?\(?==([\d.]+)", _text_of(metadata), re.M)
        )
    nccl, cudnn, cublas = (_numbers(pinned.get(name, "")) for name in ("nccl", "cudnn", "cublas"))
    return (
        ("CUDA_MAJOR", major),
        ("CUDA_VERSION", major * 1000 + minor * 10),
        ("NCCL_VERSION", nccl[0] * 10000 + nccl[1] * 100 + nccl[2]),
        ("CUDNN_VERSION", cudnn[0] * 10000 + cudnn[1] * 100 + cudnn[2]),
        ("CUBLAS_VERSION", cublas[0] * 10000 + cublas[1] * 100 + cublas[2]),
    )


def _numbers(text: str) -> tuple[int, int, int]:
    first = [int(part) for part in text.split(".") if part.isdigit()] + [0, 0, 0]
    return first[0], first[1], first[2]


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def exported(path: Path) -> frozenset[str]:
    """Return the names that a library exports, from its section table."""
    with opened_library(path) as library:
        return library.defined() if library else frozenset()

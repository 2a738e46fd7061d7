"""Find the packages of an environment by their .dist-info folders, without importing or running any."""

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from sgl_tune.reading import bounded_bytes

_INFO = re.compile(r"(.+?)-([^-]+)\.dist-info")
_COMPILERS = {"triton": "triton", "tilelang": "tilelang", "cutlass-dsl": "nvidia-cutlass-dsl"}
_LARGEST_RECORD = 64 << 20
_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*(?:'(\d+)\.\d+[\w.]*'|\"(\d+)\.\d+[\w.]*\"|None)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package. `info`: its .dist-info folder."""

    name: str
    version: str
    info: Path


class Unclear(ValueError):
    """The installed version is not clear. The text says why and names the folder."""


def packages_in(folders: Sequence[Path]) -> dict[str, Package]:
    """Return packages by normalised name. The first folder that has a package counts, as for an import."""
    found: dict[str, Package] = {}
    for folder in folders:
        here: dict[str, Package] = {}
        for package in _infos(folder):
            other = here.setdefault(package.name, package)
            if other.version != package.version:
                both = " and ".join(sorted((other.version, package.version)))
                raise Unclear(f"{folder}: {package.name} is there twice: {both}")
        found = {**here, **found}
    return found


def normal(name: str) -> str:
    """Return the normalised name: `FlashInfer_Python` and `flashinfer-python` are one package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _infos(folder: Path) -> Iterator[Package]:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.name.endswith(".dist-info"))
    for name in names:
        match = _INFO.fullmatch(name)
        if match and (folder / name / "METADATA").is_file():
            yield Package(normal(match[1]), match[2], folder / name)


def is_whole(package: Package, module: str) -> bool:
    """Whether the package's code lies beside its .dist-info, or is an editable install elsewhere."""
    beside = package.info.parent / module / "__init__.py"
    return beside.is_file() or (package.info / "direct_url.json").is_file()


def cuda_of(torch: Package) -> int | None:
    """Return the CUDA major version of a torch; None for a torch of CPUs or of another vendor's GPU."""
    path = torch.info.parent / "torch/version.py"
    try:
        match = _CUDA.search(bounded_bytes(path, 1 << 16).decode("utf-8", "replace"))
    except OSError as error:
        raise Unclear(f"{path}: torch is not whole: {error.strerror}") from error
    if match is None:
        raise Unclear(f"{path}: does not say for which CUDA this torch was built")
    major = match[1] or match[2]
    return int(major) if major else None


def fingerprint_of(packages: Sequence[Package], walked: Sequence[Path]) -> str:
    """Return a digest of what each package installed. For folders in `walked`, whose files people edit, it
    also covers the size and time of each file."""
    digest = hashlib.sha256()
    for package in sorted(packages, key=lambda one: one.name):
        try:
            record = hashlib.sha256(bounded_bytes(package.info / "RECORD", _LARGEST_RECORD)).hexdigest()
        except OSError:
            record = "none"  # system package managers write none
        digest.update(f"{package.name}=={package.version} {record}\n".encode())
    for folder in walked:
        for line in sorted(_files(folder, folder.name)):
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _files(folder: Path, name: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        below = f"{name}/{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__":
                yield from _files(folder / entry.name, below)
        else:
            status = entry.stat(follow_symlinks=False)
            yield f"{below} {status.st_size} {status.st_mtime_ns}\n"


def version_here(distribution: str) -> str | None:
    from importlib import metadata  # takes 1/7 of a file command's start

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def installed_libraries() -> dict[str, str]:
    """Return the versions of Python and of the libraries whose stores name their version, and $CXX."""
    there = {name: version for name, dist in _COMPILERS.items() if (version := version_here(dist))}
    return {"python": f"{sys.version_info.major}.{sys.version_info.minor}", **_cxx(), **there}


def libraries_of(folders: Sequence[Path], python: str) -> dict[str, str]:
    """Return the same of the environment with these package folders and this Python."""
    packages = packages_in(folders)
    there = {name: packages[dist].version for name, dist in _COMPILERS.items() if dist in packages}
    return {"python": python, **_cxx(), **there}


def _cxx() -> dict[str, str]:
    """Return the C++ compiler as it is named here, which Inductor's keys hold."""
    return {"cxx": os.environ["CXX"]} if os.environ.get("CXX") else {}


def torch_version() -> str | None:
    try:
        return str(import_module("torch").__version__)
    except ImportError:
        return None

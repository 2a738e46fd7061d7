"""The source files of SGLang's kernels on this machine, by the names in SGLang's dependency lists."""

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from sgl_tune.reading import open_regular

_PACKAGES = {"tvm_ffi": "tvm_ffi", "pkg:flashinfer": "flashinfer", "pkg:deep_gemm": "deep_gemm"}
_KERNELS = Path("kernels") / "jit"
_LARGEST = 64 << 20


class Sources:
    """The digests of SGLang's source files. Each file is read once, because kernels share most headers."""

    def __init__(self) -> None:
        self._roots = _roots()
        self._digest = cache(_digest)

    def changed(self, entries: list[list[str]]) -> str | None:
        """Return the first missing or changed file. CUDA's own files count as unchanged if no variable
        names CUDA."""
        for root, relative, digest in entries:
            base = Path("/") if root == "abs" else self._roots.get(root)
            if base is None and root == "toolkit":
                continue
            if base is None or self._digest(base / relative) != digest:
                return f"{root}:{relative}"
        return None


def sources_here() -> Sources | None:
    """Return the sources, or None if no SGLang is installed here."""
    return Sources() if find_spec("sglang") else None


def _roots() -> dict[str, Path]:
    import sysconfig

    found = {"sys": Path("/usr"), "sitepkgs": Path(sysconfig.get_paths()["purelib"])}
    for token, package in _PACKAGES.items():
        folder = _folder_of(package)
        if folder:
            found[token] = folder
    sglang = _folder_of("sglang")
    if sglang and (sglang / _KERNELS).is_dir():
        found["kernels"] = sglang / _KERNELS
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if toolkit:
        found["toolkit"] = Path(toolkit)
    return {token: path.resolve() for token, path in found.items()}


def _folder_of(package: str) -> Path | None:
    """Return a package's folder without importing it."""
    spec = find_spec(package)
    return Path(spec.origin).resolve().parent if spec and spec.origin else None


def _digest(path: Path) -> str | None:
    """Return the digest of as many bytes as the file's size says, because some system files never end."""
    import hashlib

    try:
        with open_regular(path, _LARGEST) as file:
            return hashlib.sha256(file.read(os.fstat(file.fileno()).st_size)).hexdigest()
    except (OSError, ValueError):
        return None

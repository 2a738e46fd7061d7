"""What a server's next start compiles: the kernels and modules of its record that its stores do not hold."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.flashinfer.versions import number
from runtime.record.parts import Kernel, Module
from runtime.record.record import Record
from runtime.sglang.kept_files import kept_files
from sgl_tune.stores.places import release_meant
from sgl_tune.stores.rows import gathering, places
from sgl_tune.units import count

# Seconds that a start on an H200's machine of 16 to 64 cores spent for each, one after the other.
SECONDS = {"triton": 0.25, "tvm-ffi": 8.5, "flashinfer-jit": 25.0, "cute": 1.2}
_STORES = ("triton", "tvm-ffi", "flashinfer-jit")
_LONG = ("fused_moe",)  # FlashInfer compiles hundreds of files for one
_NEVER_KEPT = "flashinfer.norm.kernels."  # CuTe DSL's, compiled in every process


@dataclass(frozen=True, slots=True)
class Compiles:
    """What a start asks for, and of it what its stores lack, by store. `unknown`: kernels whose file names
    are not known here."""

    asked: int
    missing: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...]

    @property
    def number(self) -> int:
        return sum(map(len, self.missing.values()))

    @property
    def long(self) -> tuple[str, ...]:
        return tuple(name for names in self.missing.values() for name in names if name.startswith(_LONG))

    @property
    def seconds(self) -> float:
        """Return about how long compiling takes, without what takes many minutes."""
        found = {store: len(names) for store, names in self.missing.items()}
        found["flashinfer-jit"] = found.get("flashinfer-jit", 0) - len(self.long)
        return sum(SECONDS[store] * many for store, many in found.items())

    @property
    def says(self) -> str:
        if not self.number:
            return f"it would compile none of its {count(self.asked, 'kernel')}"
        what = f"it would compile {self.number} of {count(self.asked, 'kernel')}, about {self.seconds:.0f} s"
        return f"{what} and many minutes for {', '.join(self.long)}" if self.long else what

    def to_json(self) -> dict[str, Any]:
        return {
            "asked": self.asked,
            "missing": {store: list(names) for store, names in self.missing.items()},
            "seconds": round(self.seconds, 1),
            "unknown": list(self.unknown),
        }


def compiles(records: Sequence[Record], root: Path, environment: Mapping[str, str]) -> Compiles:
    """Judge the stores below the root if it has any, else those that this user's variables name."""
    release = kept_files(number(release_meant(records[0].asked.versions.get("sglang"))))
    home = environment.get("HOME") or str(Path.home())
    below = places(release, gathering(release, str(root.absolute())), home, "")
    is_root = any(Path(one).is_dir() for store in _STORES for one in below[store])
    stores = below if is_root else places(release, environment, home, os.environ.get("USER", ""))
    asked, missing, unknown = 0, dict[str, list[str]](), list[str]()
    for store, name, is_there in _asked(records, stores):
        asked += 1
        if is_there is None:
            unknown.append(name)
        elif not is_there:
            missing.setdefault(store, []).append(name)
    return Compiles(asked, {store: tuple(names) for store, names in missing.items()}, tuple(unknown))


def _asked(
    records: Sequence[Record], stores: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str, bool | None]]:
    """Yield the store, the name, and whether it is there, of everything that some rank compiles, once."""
    for kernel in dict.fromkeys(one for record in records for one in record.kernels):
        store = "triton" if kernel.digest else "cute"
        yield store, kernel.name, _has_kernel(kernel, stores)
    for module in {one.name: one for record in records for one in record.modules}.values():
        if module.library == "flashinfer":
            yield "flashinfer-jit", module.name, _has_flashinfer(module, stores["flashinfer-jit"])
        elif module.library == "sglang":
            yield "tvm-ffi", module.name, _has_own(module, stores["tvm-ffi"])


def _has_kernel(kernel: Kernel, stores: Mapping[str, tuple[str, ...]]) -> bool | None:
    if kernel.digest:
        key = base64.b32encode(bytes.fromhex(kernel.digest)).decode().rstrip("=")
        return _any(stores["triton"], f"{key}/*.cubin")
    module, _, name = kernel.name.partition(".")
    if kernel.name.startswith(_NEVER_KEPT):
        return False
    if "." in name or not name:
        return None
    return _any(stores["flashinfer-jit"], f"*/*/cached_ops/{module}_*_cute_dsl/{name}.o")


def _has_flashinfer(module: Module, folders: Sequence[str]) -> bool:
    pattern = f"*/*/cached_ops/{module.name}/{module.name}.so"
    return _is_installed(module) or _any(folders, pattern)


def _has_own(module: Module, folders: Sequence[str]) -> bool:
    patterns = (f"{module.name}__*/{module.name}.so", f"*/{module.name}/build-*/deps-*/{module.name}.so")
    return _is_installed(module) or any(_any(folders, pattern) for pattern in patterns)


def _is_installed(module: Module) -> bool:
    """Whether the start found it in a package of the server; what a start itself makes is gone by now."""
    path = Path(module.path)
    return _any([str(path.parent)], path.name) if path.is_absolute() else False


def _any(folders: Sequence[str], pattern: str) -> bool:
    """Whether a folder has a file of the pattern with contents."""
    for folder in folders:
        for file in Path(folder).glob(pattern):
            if file.is_file() and file.stat().st_size:
                return True
    return False

"""Stores as their libraries leave them, small: names, layouts and the files that are looked at are real."""

import base64
import hashlib
import json
import struct
from pathlib import Path
from typing import Any

TRITON, FLASHINFER, TILELANG = "3.6.0", "0.7.2", "0.1.12"
CUBIN = (
    b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7) + struct.pack("<HHI", 2, 190, 1) + bytes(24)
    + struct.pack("<IHHHHHH", 90 | 90 << 16, 64, 56, 0, 64, 0, 0) + bytes(64)
)  # fmt: skip
LIBRARY = (
    b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 3, 62, 1) + bytes(16) + struct.pack("<Q", 64)
    + struct.pack("<IHHHHHH", 0, 64, 56, 0, 64, 1, 0) + bytes(64)
)  # fmt: skip


def write(path: Path, content: bytes | str | Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def triton_kernel(store: Path, name: str, place: Path | None = None, **metadata: Any) -> Path:
    """As `put` and `put_group` write one, of a store at `place`."""
    key = base64.b32encode(hashlib.sha256(name.encode()).digest()).decode().rstrip("=")
    folder = store / key
    target = {"backend": "cuda", "arch": 90, "warp_size": 32}
    told = {"hash": key, "target": target, "name": name, "triton_version": TRITON, **metadata}
    for suffix in ("ttir", "ttgir", "llir", "ptx", "source"):
        write(folder / f"{name}.{suffix}", f"// {name}")
    write(folder / f"{name}.cubin", CUBIN)
    write(folder / f"{name}.json", told)
    files = [path.name for path in folder.iterdir()]
    children = {file: str((place or store) / key / file) for file in files}
    write(folder / f"__grp__{name}.json", {"child_paths": children})
    return folder


def triton_launcher(store: Path, python: str = "311") -> Path:
    folder = store / base64.b32encode(hashlib.sha256(b"launcher").digest()).decode().rstrip("=")
    return write(folder / f"__triton_launcher.cpython-{python}-x86_64-linux-gnu.so", LIBRARY).parent


def flashinfer_module(store: Path, name: str, version: str = FLASHINFER, arch: str = "90a") -> Path:
    folder = store / version / arch / "cached_ops" / name
    write(folder / f"{name}.so", LIBRARY)
    write(folder / f"{name}.cuda.o", LIBRARY)
    write(folder / "build.ninja", f"build {folder}/{name}.so: link {folder}/{name}.cuda.o\n")
    return folder


def sglang_leaf(store: Path, module: str, entries: list[list[str]] | None = None) -> Path:
    entries = entries or [["kernels", f"csrc/{module}.cuh", "ab" * 32]]
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(repr(tuple(entry)).encode() + b"\0")
    leaf = store / "sm90a" / module / "build-0123456789abcdef" / f"deps-{digest.hexdigest()[:16]}"
    write(leaf / "sgl_deps.json", entries)
    write(leaf / f"{module}.so", LIBRARY)
    return leaf


def graph(store: Path, name: str = "f") -> Path:
    digest = base64.b32encode(hashlib.sha256(name.encode()).digest()).decode().lower().rstrip("=")
    write(store / digest[1:3] / f"c{digest}.py", "def call(args): ...\n")
    write(store / "aotautograd" / f"a{digest}" / digest, b"\x80\x05pickle")
    return write(store / "fxgraph" / digest[1:3] / f"f{digest}" / digest, b"\x80\x05pickle").parent


def gemm(store: Path, name: str = "sm90_fp8_gemm_1d2d") -> Path:
    folder = store / "cache" / f"{name}.{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    write(folder / "kernel.cu", "#include <deep_gemm/impls/one.cuh>\n")
    write(folder / ".committed", b"")
    return write(folder / "kernel.cubin", CUBIN).parent


def cute_object(store: Path, name: str = "fwd", lock: bool = True) -> Path:
    folder = store / hashlib.sha256(b"sources").hexdigest() / name
    key = hashlib.sha256(name.encode()).hexdigest()
    if lock:
        write(folder / f"{key}.lock", b"")
    return write(folder / f"{key}.o", LIBRARY)


def tilelang_kernel(store: Path, name: str = "prenorm", version: str = TILELANG) -> Path:
    key = hashlib.sha256(name.encode()).hexdigest()
    folder = store / version / "linux-x86_64" / "kernels" / key
    (store / version / "linux-x86_64" / ".staging").mkdir(parents=True, exist_ok=True)
    files = {
        "device_kernel.cu": b"//",
        "host_kernel.cu": b"//",
        "kernel_lib.so": LIBRARY,
        "params.json": b"[]",
    }
    for file, content in files.items():
        write(folder / file, content)
    told = {file: {"size": len(content)} for file, content in files.items()}
    return write(folder / "manifest.json", {"version": 1, "files": told}).parent


def whole_root(root: Path, kernels: int = 2) -> Path:
    """All of a start, as 0.5.23 arranges it below its cache directory."""
    for number in range(kernels):
        triton_kernel(root / "triton", f"kernel_{number}")
        graph(root / "inductor", f"graph_{number}")
    triton_launcher(root / "triton")
    flashinfer_module(root / ".cache/flashinfer", "norm")
    write(root / ".cache/flashinfer/cubins/abc/fmha/kernel.cubin", CUBIN)
    sglang_leaf(root / "jit", "sgl_kernel_jit_norm")
    write(root / "tvm-ffi" / "libtorch_c_dlpack_addon_torch211-cuda.so", LIBRARY)
    gemm(root / "deep_gemm")
    cute_object(root / "cute_aot")
    tilelang_kernel(root / "tilelang")
    write(root / "nv/index", b"\0" * 8)
    write(root / "nv/a/b/0123", b"\0" * 80)
    return root

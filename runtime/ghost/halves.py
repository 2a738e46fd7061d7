"""Host halves: FlashInfer's compiled modules without their GPU code, kept so that their host code runs here.

Kept as ROOT/halves/FLASHINFER/ARCH/NAME/DIGEST.so, where DIGEST is the SHA-256 of the file.
"""

import contextlib
import lzma
import mmap
import os
import platform
import re
import struct
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from runtime.ghost.library import Library, NotALibrary, host_half, unloadable
from runtime.ghost.trust import Untrusted, opened

State = Literal["real", "half", "refused"]

_LARGEST = 2 << 30
_BLOCK = 64 << 10
_MACHINES = {"x86_64": 62, "aarch64": 183}
_MODULE = re.compile(r"\w{1,200}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.+]{0,40}")
_LZMA_MEMORY = 96 << 20  # what unpacking the best preset takes, and a little more
_LZMA_PRESET = 3  # 4.9 MB of a fused MoE in 4 s; the best preset takes 23 s for 4.5 MB


@dataclass(frozen=True)
class Module:
    """A module that a server has, or a host half that is kept for it. `why` is the reason for a refusal."""

    name: str
    state: State
    path: Path
    why: str = ""
    needs_half: bool = False  # it is refused, but its host half may load


@dataclass(frozen=True)
class Kind:
    """The servers and GPUs that a half is for: FlashInfer's version, and "90" for an H200, for example."""

    flashinfer: str
    arch: str

    def folder(self, root: Path) -> Path:
        return root / "halves" / self.flashinfer / self.arch


def keep_half(module: Path, kind: Kind, name: str, root: Path) -> Path:
    """Make the host half of `module`, which must load on this machine, and keep it; return its path."""
    with opened(module) as descriptor, _mapped(descriptor) as image:
        half = host_half(image)
    return _kept_as(sha256(half).hexdigest(), half, kind, name, root)


def pack(half: Path, out: Path) -> str:
    """Write `half` compressed to `out`; return the SHA-256 of the half."""
    with opened(half) as descriptor, _mapped(descriptor) as image:
        data = bytes(image)
    packer = lzma.LZMACompressor(preset=_LZMA_PRESET)
    _write(out, packer.compress(data) + packer.flush())
    return sha256(data).hexdigest()


def unpack(packed: Path, kind: Kind, name: str, root: Path) -> Path:
    """Keep the host half that the file `packed` holds compressed; return its path."""
    data = bytearray()
    unpacker = lzma.LZMADecompressor(memlimit=_LZMA_MEMORY)
    try:
        with opened(packed) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
            while not unpacker.eof:
                block = file.read(_BLOCK) if unpacker.needs_input else b""
                if unpacker.needs_input and not block:
                    raise NotALibrary("it is cut off")
                data += unpacker.decompress(block, max_length=4 << 20)
                if len(data) > _LARGEST:
                    raise NotALibrary(f"it is larger than {_LARGEST >> 30} GiB")
    except lzma.LZMAError as error:
        raise NotALibrary(f"it is damaged ({error})") from error
    half = host_half(data)
    return _kept_as(sha256(half).hexdigest(), half, kind, name, root)


def _kept_as(digest: str, half: bytearray, kind: Kind, name: str, root: Path) -> Path:
    if why := unloadable(half, _glibc(), _machine()):
        raise NotALibrary(f"the module {name} cannot be loaded here: {why}")
    folder = kind.folder(root) / _checked_name(name)
    _make_private(folder, root)
    place = folder / f"{digest}.so"
    if not place.is_file():
        _write(place, half)
    return place


def flashinfer_version(server_site: Path) -> str | None:
    """Return the version of FlashInfer in a server's site-packages, by its metadata."""
    for found in sorted(server_site.glob("flashinfer_python-*.dist-info")):
        version = found.name.removeprefix("flashinfer_python-").removesuffix(".dist-info")
        if _VERSION.fullmatch(version):
            return version
    return None


def modules_of(
    server_site: Path, gpu_arch: str, *, cuda: int, root: Path, environment: Mapping[str, str] = os.environ
) -> tuple[Module, ...]:
    """Return each FlashInfer module that a server would find compiled, or a kept half of it; one per name.

    The module itself has precedence over its half, unless it cannot be loaded here. `gpu_arch` is "90" for an
    H200, and `cuda` the major version that the server's torch was built for.
    """
    version = flashinfer_version(server_site)
    if version is None:
        return ()
    found: dict[str, Module] = {}
    for name, path in _candidates(server_site, version, gpu_arch, environment):
        if name not in found or found[name].state == "refused":
            found[name] = _judged(name, "real", path, cuda)
    for name, path in _kept(Kind(version, gpu_arch), root):
        if name not in found or found[name].state == "refused":
            half = _judged(name, "half", path, cuda)
            if name not in found or half.state == "half":
                found[name] = half
    return tuple(found[name] for name in sorted(found))


def halves_for(
    server_site: Path, gpu_arch: str, *, cuda: int, root: Path, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the modules or host halves that a start may load, by name: see `modules_of`."""
    version = flashinfer_version(server_site)
    if version is None:
        return {}
    found = modules_of(server_site, gpu_arch, cuda=cuda, root=root, environment=environment)
    return loadable(found, Kind(version, gpu_arch), root)


def loadable(modules: tuple[Module, ...], kind: Kind, root: Path) -> dict[str, str]:
    """Return the path to load per module. If only a module's host half loads here, it is made and kept."""
    paths: dict[str, str] = {}
    for one in modules:
        if one.state != "refused":
            paths[one.name] = str(one.path)
        elif one.needs_half:
            with contextlib.suppress(NotALibrary, Untrusted):
                paths[one.name] = str(keep_half(one.path, kind, one.name, root))
    return paths


def _candidates(
    site: Path, version: str, arch: str, environment: Mapping[str, str]
) -> Iterator[tuple[str, Path]]:
    """Yield modules in FlashInfer's order: its package, the packages of modules, the user's cache."""
    folders = [site / "flashinfer/data/aot"]
    for package in sorted(site.glob("flashinfer_jit_cache*")):
        if not package.name.endswith(".dist-info"):
            folders.append(package / "jit_cache")
    base = environment.get("FLASHINFER_WORKSPACE_BASE") or environment.get("HOME") or str(Path.home())
    for built in sorted((Path(base) / ".cache/flashinfer" / version).glob(f"{arch}*")):
        if re.fullmatch(rf"{arch}[a-z]?", built.name):  # 90a
            folders.append(built / "cached_ops")
    for folder in folders:
        for path in sorted(folder.glob("*/*.so")):
            if path.stem == path.parent.name and _MODULE.fullmatch(path.stem):
                yield path.stem, path


def _kept(kind: Kind, root: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(kind.folder(root).glob("*/*.so")):
        if _DIGEST.fullmatch(path.stem) and _MODULE.fullmatch(path.parent.name):
            yield path.parent.name, path


def _judged(name: str, state: State, path: Path, cuda: int) -> Module:
    try:
        with opened(path) as descriptor, _mapped(descriptor) as image:
            linked = _cuda(image)
            if linked not in (None, cuda):
                return Module(
                    name, "refused", path, f"it is linked to CUDA {linked}, the server to CUDA {cuda}"
                )
            why = unloadable(image, _glibc(), _machine())
    except Untrusted as error:
        return Module(name, "refused", path, error.reason)
    except (OSError, NotALibrary) as error:
        return Module(name, "refused", path, f"it cannot be read ({error})")
    return Module(name, "refused" if why else state, path, why, bool(why))


def _cuda(image: mmap.mmap) -> int | None:
    """Return the major version of the CUDA runtime that a module is linked to."""
    with contextlib.suppress(struct.error, NotALibrary):
        for name in Library(image).needed:
            if match := re.fullmatch(r"libcudart\.so\.(\d+)", name):
                return int(match[1])
    return None


def _machine() -> int:
    return _MACHINES.get(platform.machine(), 0)


def _glibc() -> int:
    """Return 36 for glibc 2.36, or 0 for another C library."""
    try:
        told = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return 0
    match = re.fullmatch(r"glibc 2\.(\d+).*", told)
    return int(match[1]) if match else 0


@contextlib.contextmanager
def _mapped(descriptor: int) -> Iterator[mmap.mmap]:
    size = os.fstat(descriptor).st_size
    if not 0 < size <= _LARGEST:
        raise NotALibrary("it is empty" if not size else f"it is larger than {_LARGEST >> 30} GiB")
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as image:
        yield image


def _checked_name(name: str) -> str:
    if not _MODULE.fullmatch(name):
        raise NotALibrary(f"{name[:80]!r} is no name of a module")
    return name


def _make_private(folder: Path, root: Path) -> None:
    """Create the folders from `root` on, closed to other users."""
    for one in (*reversed(folder.relative_to(root).parents), folder.relative_to(root)):
        (root / one).mkdir(mode=0o700, parents=True, exist_ok=True)


def _write(out: Path, data: bytes | bytearray) -> str:
    """Write `out` completely or not at all, with holes for blocks of zeros; return the SHA-256."""
    handle, part = tempfile.mkstemp(prefix=f".{out.name[:60]}.", suffix=".part", dir=out.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            view, zeros = memoryview(data), bytes(_BLOCK)
            for at in range(0, len(view), _BLOCK):
                block = view[at : at + _BLOCK]
                if block != zeros[: len(block)]:
                    file.seek(at)
                    file.write(block)
            file.truncate(len(view))
            file.flush()
            os.fsync(file.fileno())
        Path(part).replace(out)
    finally:
        Path(part).unlink(missing_ok=True)
    return sha256(data).hexdigest()

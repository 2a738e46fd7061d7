"""Find the CUDA toolkit that compiles FlashInfer's modules: where FlashInfer looks, or where pip put it.
The packages of one CUDA release are a dozen wheels, and pip takes the newest of each that is not pinned. A
compiler of one release with an assembler of another fails after minutes, so such a mixture is refused at
once."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from runtime.baking.toolkits import homes, output, program_path, with_own
from sgl_tune.errors import UsageError

PACKAGES = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
LIBRARIES = ("nvidia-cublas", "nvidia-cuda-nvrtc")
USUAL = "13.0"
_CURAND = {"12.8": "10.3.9.*", "12.9": "10.3.10.*", "13.0": "10.4.0.*"}
_RELEASE = re.compile(r"release (\d+)\.(\d+)")
_HEADER = re.compile(r"#define\s+CUDART_VERSION\s+(\d+)")
_SHARED = re.compile(r"(lib\w+\.so)\.\d[\d.]*")
_SECONDS = 30
# Programs and headers that building modules needs, below the toolkit's folder.
_PROGRAMS = ("bin/nvcc", "bin/ptxas", "bin/cudafe++", "bin/fatbinary", "nvvm/bin/cicc")
_HEADERS = ("cuda_runtime.h", "crt/host_config.h")


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A CUDA toolkit. `links`: a folder with names that a linker looks for, if the packages lack them."""

    home: Path
    release: str
    links: Path | None = None

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        found = {"CUDA_HOME": str(self.home)}
        if self.links is not None:
            before = environ.get("FLASHINFER_EXTRA_LDFLAGS", "").split(" ")
            own = f"-L{self.links}"
            found["FLASHINFER_EXTRA_LDFLAGS"] = " ".join(
                [own, *(one for one in before if one and one != own)]
            )
        return found


def pip_command(release: str = USUAL) -> str:
    pinned = [f"'{name}=={release}.*'" for name in (*PACKAGES, *LIBRARIES)]
    if release in _CURAND:
        pinned.append(f"'nvidia-curand=={_CURAND[release]}'")
    return f"pip install {' '.join(pinned)}"


def find_toolkit(environ: Mapping[str, str], headers: Iterable[str] = ()) -> Toolkit:
    """Return the first toolkit found. If it lacks something, that is an error; no other one is tried."""
    home = next(homes(environ), None)
    if home is None:
        raise UsageError("no CUDA compiler is here: CUDA_HOME is not set, nvcc not found", pip_command())
    release = _check(home, (*_HEADERS, *headers))
    return Toolkit(home, release, _links(home))


def toolkit_of(python: Path, headers: Iterable[str] = ()) -> Toolkit:
    """Return the CUDA toolkit that was added with the server of this Python, else the machine's."""
    return find_toolkit(with_own(python, os.environ), headers)


def find_tool(name: str, environ: Mapping[str, str]) -> str:
    """Find a program, also in this Python's own folder, where pip puts programs; it need not be on PATH."""
    found = shutil.which(name, path=program_path(environ))
    if found is None:
        package = "pip install ninja" if name == "ninja" else "install g++, the system's C++ compiler"
        raise UsageError(f"{name} is not here, and FlashInfer's modules are built with it", package)
    return found


def _check(home: Path, headers: Sequence[str]) -> str:
    missing = [name for name in _PROGRAMS if not (home / name).exists()]
    missing += [f"include/{name}" for name in headers if not (home / "include" / name).exists()]
    if missing:
        says = f"the CUDA toolkit in {home} has no {missing[0]}"
        release = _told(home / "bin/nvcc") if (home / "bin/nvcc").exists() else None
        raise UsageError(says, pip_command(release or USUAL))
    release = _told(home / "bin/nvcc")
    if release is None:
        raise UsageError(f"{home}/bin/nvcc does not run", pip_command())
    told = {"ptxas": _told(home / "bin/ptxas"), "its headers": _of_headers(home), **_of_packages(home)}
    odd = next((name for name, other in told.items() if other not in (release, None)), None)
    if odd is not None:
        says = f"the CUDA toolkit in {home} is a mixture: nvcc is of {release}, {odd} of {told[odd]}"
        raise UsageError(says, pip_command(release))
    return release


def _told(program: Path) -> str | None:
    match = _RELEASE.search(output(program, "--version"))
    return f"{match[1]}.{match[2]}" if match else None


def _of_packages(home: Path) -> dict[str, str]:
    """Return each program's release by its pip package, because cicc does not print its own."""
    found = {}
    for name in PACKAGES:
        for told in home.parent.parent.glob(f"{name.replace('-', '_')}-*.dist-info"):
            version = told.name.removesuffix(".dist-info").rpartition("-")[2]
            found[name] = ".".join(version.split(".")[:2])
    return found


def _of_headers(home: Path) -> str | None:
    try:
        match = _HEADER.search((home / "include/cuda_runtime_api.h").read_text(errors="replace"))
    except OSError:
        return None
    return f"{int(match[1]) // 1000}.{int(match[1]) % 1000 // 10}" if match else None


def _links(home: Path) -> Path | None:
    """Return a folder of library names without versions, as a linker needs them. pip's libraries have
    versions, and the driver's library is missing."""
    if (home / "lib64/libcudart.so").exists():
        return None
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sgl-tune"
    folder = own / f"cuda-{sha256(str(home.resolve()).encode()).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for library in sorted((home / "lib").glob("lib*.so.*")):
        match = _SHARED.fullmatch(library.name)
        if match and not (folder / match[1]).exists():
            (folder / match[1]).symlink_to(library)
    if not (folder / "libcuda.so").exists():
        _stand_in(folder)
    return folder


def _stand_in(folder: Path) -> None:
    """Make an empty library with the driver's name: what links to it loads the real one when it runs."""
    made = folder / f".libcuda.{os.getpid()}.so"
    words = [find_tool("c++", os.environ), "-shared", "-Wl,-soname,libcuda.so.1", "-x", "c++", os.devnull]
    done = subprocess.run([*words, "-o", made], capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        raise UsageError(f"c++ cannot link a library: {done.stderr.strip()[-300:]}", "repair the compiler")
    made.replace(folder / "libcuda.so")

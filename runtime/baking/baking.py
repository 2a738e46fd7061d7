"""What a start that compiles for real is given."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from runtime.ghost.inside import compilers

COMPILERS = ("CC", "CXX", "CUDAHOSTCXX", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")


@dataclass(frozen=True)
class Baking:
    """Compile with the CUDA toolkit in `toolkit`, in at most `jobs` processes, into the stores below `root`
    that `variables` name. `links`: a folder of names for a linker, if the toolkit lacks them. `compilers`:
    variables that choose compilers, as they are set where the server runs, because keys hold them."""

    root: Path
    toolkit: Path
    links: Path | None
    variables: Mapping[str, str]
    compilers: Mapping[str, str]
    jobs: int = 1

    def environment(self, linked: Path) -> dict[str, str]:
        """Return the variables of the start itself. It finds the true toolkit, and a `ninja` of ours.
        `linked`: the folder with a library to link with in place of the driver's."""
        tools = compilers.environment(self._path)
        own = {"CUDA_HOME": str(self.toolkit), "TRITON_LIBCUDA_PATH": str(linked)}
        return {**tools, **own, **_version(self.toolkit / "bin/nvcc"), **self.compilers}

    def line(self, programs: Path, linked: Path) -> dict[str, Any]:
        """Return how children compile. They find `ninja` in `programs`."""
        found = {
            "PATH": f"{self._path}:{programs}",
            "LIBRARY_PATH": ":".join(str(one) for one in (linked, self.links) if one),
        }
        return {"variables": {**self.variables, **found}, "jobs": self.jobs}

    @property
    def runnable(self) -> list[str]:
        """Return the folders from which the start runs programs, beside the system's."""
        words = [word for value in self.compilers.values() for word in value.split()[:1]]
        named = [str(Path(word).parent.parent) for word in words if word.startswith("/")]
        return [str(self.root), str(self.toolkit), *named]

    @property
    def _path(self) -> str:
        return f"{self.toolkit}/bin:/usr/local/bin:/usr/bin:/bin"


@cache
def nvcc_says(python: Path) -> dict[str, str]:
    """Return the version of the CUDA compiler that this server would run, as a variable of its start on the
    ghost. DeepGEMM's keys hold every word of it."""
    return _version(next(_compilers(python), None))


def _compilers(python: Path) -> Iterator[Path]:
    """Yield those of the server's own packages, of CUDA_HOME and of the path."""
    yield from python.parents[1].glob("lib/python3*/site-packages/nvidia/cu*/bin/nvcc")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name]) / "bin/nvcc"
    if found := shutil.which("nvcc"):
        yield Path(found)
    yield Path("/usr/local/cuda/bin/nvcc")


def _version(nvcc: Path | None) -> dict[str, str]:
    if nvcc is None or not os.access(nvcc, os.X_OK):
        return {}
    ran = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    return {} if ran.returncode else {"GHOST_NVCC": ran.stdout.rstrip("\n")}

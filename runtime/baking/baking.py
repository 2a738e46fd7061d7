"""What a start that compiles for real is given."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from runtime.baking.toolkits import homes, output, with_own
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
        """Return the variables of the start itself. It finds the real toolkit, and a `ninja` of ours.
        `linked`: the folder with a library to link with in place of the driver's."""
        tools = compilers.environment(self._path)
        own = {"CUDA_HOME": str(self.toolkit), "TRITON_LIBCUDA_PATH": str(linked)}
        return {**tools, **own, **_version(self.toolkit), **self.compilers}

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
    home = next(homes(with_own(python, os.environ)), None)
    return _version(home) if home is not None else {}


def _version(toolkit: Path) -> dict[str, str]:
    said = output(toolkit / "bin/nvcc", "--version").rstrip("\n")
    return {"GHOST_NVCC": said} if "release" in said else {}

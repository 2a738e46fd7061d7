"""The workers that replay a record, in a server's Python on a GPU that is not there: its clock is no clock.

`python_on_ghost` makes the Python; `tests.warm.recorded.ghost_worker` and `ghost_prover` run in it.
"""

import json
from pathlib import Path

from runtime.ghost.build import library
from runtime.ghost.gpus import gpus
from runtime.ghost.halves import Kind, flashinfer_version, loadable, modules_of
from runtime.ghost.inside import compilers
from runtime.sglang.server_process import Ghost
from sgl_tune.asking.kept import cache_folder
from sgl_tune.processes.command import ROOT, Python
from sgl_tune.warm.proof import How

LIBRARY, HALVES = "SGL_TUNE_TEST_GHOST", "SGL_TUNE_TEST_HALVES"


def python_on_ghost(python: Path, gpu: str, work: Path) -> Python:
    """`work`: where the libraries are built, if they are not there."""
    packages = next(python.parents[1].glob("lib/python3*/site-packages"))
    row, libraries = gpus()[gpu], library([packages], work)
    version, halves = flashinfer_version(packages), dict[str, str]()
    if version is not None:
        found = modules_of(packages, row.arch, cuda=13, root=cache_folder(), environment={})
        halves = loadable(found, Kind(version, row.arch), cache_folder())
    variables = {
        **Ghost(libraries, row.key, row.row()).environment(),
        **compilers.environment("/usr/local/bin:/usr/bin:/bin"),
        "PYTHONPATH": str(ROOT),
        "FLASHINFER_WORKSPACE_BASE": str(work),
        LIBRARY: str(libraries / "libghost.so"),
        HALVES: json.dumps(halves),
    }
    return Python(str(python), variables)


def how_on_ghost(python: Path, gpu: str, work: Path) -> How:
    own = "tests.warm.recorded"
    return How(f"{own}.ghost_worker", f"{own}.ghost_prover", python_on_ghost(python, gpu, work))

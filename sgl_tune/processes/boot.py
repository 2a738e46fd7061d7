"""The first lines of every Python process that we start, run by path: `boot.py ROOT PARENT FD.. MODULE`.
Python puts a script's folder first on its path, and with `-c` or `-m` the current folder: files there
would be imported in place of the intended modules. Only our own modules are imported from ROOT."""

import sys

_HERE = __file__.rpartition("/")[0]
sys.path[:] = [place for place in sys.path if place[:1] == "/" and place != _HERE]

import ctypes  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
from importlib import import_module  # noqa: E402
from importlib.util import module_from_spec, spec_from_file_location  # noqa: E402

PACKAGES = ("runtime", "sgl_tune")
_PR_SET_PDEATHSIG = 1


def _die_with(parent: int) -> None:
    """Let the system kill this process when its parent dies. Elsewhere, the closed pipe ends it later."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _claim(root: str, package: str) -> None:
    folder = f"{root}/{package}"
    spec = spec_from_file_location(package, f"{folder}/__init__.py", submodule_search_locations=[folder])
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[package] = module
    spec.loader.exec_module(module)


def main(root: str, parent: str, *rest: str) -> None:
    _die_with(int(parent))
    *descriptors, module = rest
    for descriptor in map(int, descriptors):
        os.set_inheritable(descriptor, False)  # our children must not keep it open
    for package in PACKAGES:
        _claim(root, package)
    child = import_module("sgl_tune.processes.child")
    child.run(module, int(descriptors[0]), int(descriptors[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])

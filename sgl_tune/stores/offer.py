"""A package that offers FlashInfer its compiled modules. Since 0.6.11 FlashInfer first asks
`flashinfer_jit_cache`, and loads the modules it names without checking times, commands or paths. A file in
the package lists the complete modules."""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from sgl_tune.cache.folder import Folder, entered, open_folder
from sgl_tune.stores.find import Stored
from sgl_tune.stores.item import Item, read_json
from sgl_tune.stores.readers.flashinfer import CUTE
from sgl_tune.stores.rows import AOT_PACKAGE

PACKAGE = "flashinfer_jit_cache"
OFFER = "offer.json"
_CUDA = re.compile(rb"libcudart\.so\.(\d+)")


def offered_modules(stored: Stored) -> frozenset[str]:
    """Return the items that a package of the same root offers, named like `0.7.2/90a/cached_ops/norm`."""
    is_usual = stored.path.parts[-2:] == (".cache", "flashinfer")  # which FlashInfer appends to its variable
    for root in dict.fromkeys([stored.root, stored.path.parents[1] if is_usual else stored.path]):
        try:
            with open_folder(root / AOT_PACKAGE / PACKAGE, root) as opened:
                modules = read_json(opened, OFFER)["modules"]
            found = {(place, name) for place, row in modules.items() for name in row["names"]}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        return frozenset(f"{place}/cached_ops/{name}" for place, name in found)
    return frozenset()


def offer_path(stored: Stored, place: str) -> str:
    """Return the path that PYTHONPATH needs if the store is seen at `place`."""
    below = stored.path.relative_to(stored.root).as_posix()
    root = place.removesuffix(f"/{below}") if below != "." else place.removesuffix("/.cache/flashinfer")
    return f"{root}/{AOT_PACKAGE}"


def offer_of(items: Iterable[Item], folder: Folder) -> dict[str, Any]:
    """Return the complete modules, by version and architecture, with the CUDA version that they need."""
    modules: dict[str, dict[str, Any]] = {}
    for item in items:
        version, arch, _, name = item.name.split("/", 3)
        if not item.faults and not name.endswith(CUTE):
            row = modules.setdefault(f"{version}/{arch}", {"names": [], "cuda": None})
            row["names"].append(name)
            row["cuda"] = row["cuda"] or _cuda(folder, item.name, name)
    return {"modules": modules}


def _cuda(store: Folder, path: str, name: str) -> str | None:
    """Return the major version of the CUDA runtime that a library was linked against, or None."""
    with suppress(OSError), entered(store, *path.split("/")) as folder:
        before = b""
        for piece in folder.pieces(f"{name}.so"):
            if match := _CUDA.search(before + piece):
                return match[1].decode()
            before = piece[-32:]
    return None


def package_files(offer: Mapping[str, Any], store: str) -> dict[str, bytes]:
    """Return the package's files. `store`: the path from the package's folder to FlashInfer's."""
    return {
        "__init__.py": _SOURCE.replace("@STORE@", store).encode(),
        OFFER: (json.dumps(offer, indent=1) + "\n").encode(),
    }


_SOURCE = '''"""Written by sgl-tune: offers FlashInfer the compiled modules of this root, wherever it lies.

A module is offered to the FlashInfer, the GPU and the CUDA that it was compiled for, and to no other. Where
another package of this name is installed, it is asked as well.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import stat
import sys
import tempfile
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace

_HERE = Path(__file__).resolve().parent
_STORE = (_HERE / "@STORE@").resolve()
_MODULES = json.loads((_HERE / "offer.json").read_text())["modules"]


def _other():
    """Under a name of its own, by which its own relative imports find it."""
    elsewhere = [path for path in sys.path if Path(path or ".").resolve() != _HERE.parent]
    found = PathFinder.find_spec("flashinfer_jit_cache", elsewhere)
    if found is None or found.origin is None:
        return None
    name, inside = "_installed_flashinfer_jit_cache", found.submodule_search_locations
    spec = importlib.util.spec_from_file_location(name, found.origin, submodule_search_locations=inside)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception:
        del sys.modules[name]
        return None
    return module


_OTHER = _other()
_FLASHINFER = importlib.metadata.version("flashinfer-python")
__version__ = _OTHER.__version__ if _OTHER else _FLASHINFER


def _cuda():
    import torch

    return (torch.version.cuda or "").split(".")[0]


def _fits(place):
    return place.split("/")[0] == _FLASHINFER and _MODULES[place]["cuda"] in (None, _cuda())


def get_jit_cache_dir():
    """Until 0.6.18: one folder of modules."""
    from flashinfer.compilation_context import CompilationContext

    targets = sorted(CompilationContext().TARGET_CUDA_ARCHS)
    place = _FLASHINFER + "/" + "_".join(f"{major}{minor}" for major, minor in targets)
    ours = _STORE / place / "cached_ops" if place in _MODULES and _fits(place) else None
    theirs = Path(_OTHER.get_jit_cache_dir()) if _OTHER else None
    if ours and theirs:
        return str(_both(theirs, ours, _MODULES[place]["names"]) or theirs)
    return str(ours or theirs or _HERE / "none")


def _both(theirs, ours, names):
    """One folder of links to the modules of both, which only this user can write; None where that fails."""
    known = hashlib.sha256(repr((str(theirs), str(ours), names)).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"sgl-tune-modules-{os.geteuid()}-{known}"
    try:
        with suppress(FileExistsError):
            folder.mkdir(0o700)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return None
        for source in (*theirs.iterdir(), *(ours / name for name in names)):
            with suppress(FileExistsError):
                (folder / source.name).symlink_to(source)
    except OSError:
        return None
    return folder


def get_jit_cache_providers():
    """Since 0.7.1: any number of them, each for its GPUs."""
    found = list(_OTHER.get_jit_cache_providers()) if _OTHER else []
    for place in filter(_fits, _MODULES):
        arch = place.split("/")[1]
        found.append(
            SimpleNamespace(
                provider_id=f"sgl-tune-{arch}",
                distribution="flashinfer-jit-cache",
                version=__version__,
                jit_cache_dir=str(_STORE / place / "cached_ops"),
                cuda_architectures=frozenset(f"sm{one}" for one in arch.split("_")),
                modules=frozenset(_MODULES[place]["names"]),
            )
        )
    return found
'''

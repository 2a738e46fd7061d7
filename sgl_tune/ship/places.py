"""The allowed paths of a bundle's files: below SGLang's cache directory, in the folder of a store that
ships. Other names are refused: they could lead elsewhere, or mean another file on another system."""

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from sgl_tune.cache.layouts.cache import KEY, MANIFEST, is_private
from sgl_tune.cache.rank_names import RankName
from sgl_tune.stores.find import TACTICS
from sgl_tune.stores.rows import AOT_PACKAGE, BY_ID

LONGEST_PATH = 1000
_LONGEST_NAME = 255
_DEEPEST = 16
_JIT = "jit"  # SGLang's own kernels, in tvm-ffi's store
_COMPILED = "torch_compile_cache"
OFFER_PACKAGE = f"{AOT_PACKAGE}/flashinfer_jit_cache"
OFFERS = (f"{OFFER_PACKAGE}/__init__.py", f"{OFFER_PACKAGE}/offer.json")
_FOLDERS = {
    **{row.folder: row.id for row in BY_ID.values() if row.ships},
    _JIT: "tvm-ffi",
    _COMPILED: "inductor",
}
_BY_LENGTH = sorted(_FOLDERS, key=len, reverse=True)
_MODULE = re.compile(r"\d[^/]*/[^/]+/cached_ops/[^/]+/.+")
_PLAIN = re.compile(r"[ -\[\]-~]+")  # printable ASCII without a backslash


def store_of(path: str) -> str | None:
    """Return the store that a file belongs to, or None if no store would contain it."""
    if path in OFFERS:
        return "flashinfer-jit"
    folder = next((one for one in _BY_LENGTH if path.startswith(f"{one}/")), None)
    if folder is None:
        return None
    store, below = _FOLDERS[folder], path[len(folder) + 1 :]
    if store == TACTICS:
        return store if _is_tactic(below) else None
    if store == "flashinfer-jit":
        return store if _MODULE.fullmatch(below) else None
    return store


def place_of(store: str, found: Path, has_targets: bool = False) -> str:
    """Return a store's folder in a bundle, wherever it was found. SGLang's own compiler keeps one store
    per rank and graph, below a known folder."""
    if store == "inductor" and _COMPILED in found.parts:
        return _COMPILED + str(found).rpartition(f"/{_COMPILED}")[2]
    return _JIT if store == "tvm-ffi" and has_targets else BY_ID[store].folder


def _is_tactic(below: str) -> bool:
    parts = below.split("/")
    return (
        len(parts) == 4
        and bool(KEY.fullmatch(parts[2]))
        and (parts[3] == MANIFEST or RankName.parse(parts[3]) is not None)
    )


def name_fault(path: str) -> str | None:
    """Return what is wrong with a path, or None."""
    if not _PLAIN.fullmatch(path):
        return "is no plain ASCII"
    parts = path.split("/")
    if "" in parts or "." in parts or ".." in parts:
        return "is absolute, or leads out"
    if any(map(is_private, parts)):
        return "has a part that only folders of sgl-tune's own have"
    if len(path) > LONGEST_PATH or max(map(len, parts)) > _LONGEST_NAME or len(parts) > _DEEPEST:
        return f"has more than {LONGEST_PATH} letters, {_LONGEST_NAME} in a part or {_DEEPEST} parts"
    return None


def clash(files: Collection[str], above: Collection[str]) -> str | None:
    """Return a clash: names that some system takes for equal, or a path that is both file and folder."""
    both = min((path for path in files if path in above), default=None)
    if both is not None:
        return f"{both} is a file and a folder"
    seen: dict[str, str] = {}
    for path in (*files, *above):
        other = seen.setdefault(path.casefold(), path)
        if other != path:
            first, second = sorted((other, path))
            return f"{first} and {second} differ only by case"
    return None


def folders_above(paths: Iterable[str], most: int | None = None) -> set[str]:
    """Return all folders above the paths; stop when there are more than `most`."""
    found: set[str] = set()
    for path in paths:
        above = path.rpartition("/")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
        if most is not None and len(found) > most:
            break
    return found

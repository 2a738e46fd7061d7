"""SGLang's: a folder a key below FlashInfer's version and the architecture, a file a rank."""

from __future__ import annotations

import re

from sgl_tune.cache.layouts.cache import Cache, RankFile
from sgl_tune.cache.layouts.layout import Layout
from sgl_tune.cache.layouts.listing import Listing, OnError, list_folder
from sgl_tune.cache.layouts.names import BROKEN, KEY, MANIFEST
from sgl_tune.cache.layouts.vllm import are_vllms
from sgl_tune.cache.rank_names import RankName

_ARCH = re.compile(r"sm\d{2,4}[a-z]?|cpu")


def _read(listing: Listing, on_error: OnError) -> Cache | None:
    key, arch, version = listing.parents(3)
    placed = bool(_ARCH.fullmatch(arch) and KEY.fullmatch(key) and not are_vllms(listing.files))
    ranks = [(name, rank) for name in listing.files if (rank := RankName.parse(name))]
    if not ranks and not placed:
        return None
    files = (
        RankFile(listing.folder / name, rank) for name, rank in sorted(ranks, key=lambda pair: pair[1].order)
    )
    runs = list_folder(listing.folder / "runs", listing.root, on_error) if "runs" in listing.folders else None
    leftovers = listing.paths(listing.temporary()) + (runs.paths(runs.temporary()) if runs else ())
    return Cache(
        listing.folder,
        SGLANG.name,
        flashinfer=version if placed else None,
        arch=arch if placed else None,
        key=key if placed else None,
        files=tuple(files),
        leftovers=leftovers,
        runs=runs.paths([name for name in runs.files if name.endswith(".json")]) if runs else (),
        broken=listing.paths([name for name in listing.files if _is_set_aside(name)]),
        manifest=listing.folder / MANIFEST if MANIFEST in listing.files else None,
    )


def _is_set_aside(name: str) -> bool:
    return name.endswith(BROKEN) and RankName.parse(name.removesuffix(BROKEN)) is not None


SGLANG = Layout("sglang", "SGLang", ("flashinfer/autotune",), _read)

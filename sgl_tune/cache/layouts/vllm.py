"""vLLM's: one file for all ranks, in a folder a key."""

from __future__ import annotations

from sgl_tune.cache.layouts.cache import Cache, RankFile
from sgl_tune.cache.layouts.layout import Layout
from sgl_tune.cache.layouts.listing import Listing, OnError

VLLM_FILE = "autotune_configs.json"
_ROOT = "flashinfer_autotune_cache"


def _read(listing: Listing, on_error: OnError) -> Cache | None:
    """vLLM omits version and architecture when its cache directory is set by the user."""
    if VLLM_FILE not in listing.files:
        return None
    key, arch, version, root = listing.parents(4)
    placed = root == _ROOT
    return Cache(
        listing.folder,
        VLLM.name,
        flashinfer=version if placed else None,
        arch=arch if placed else None,
        key=key,
        files=(RankFile(listing.folder / VLLM_FILE, None),),
        leftovers=listing.paths(listing.temporary()),
    )


VLLM = Layout("vllm", "vLLM", (_ROOT,), _read)

"""vLLM's: a file a rank, or one for all ranks as older releases wrote it, in a folder a key."""

from __future__ import annotations

from sgl_tune.cache.layouts.cache import Cache, RankFile
from sgl_tune.cache.layouts.layout import Layout
from sgl_tune.cache.layouts.listing import Listing, OnError
from sgl_tune.cache.rank_names import VllmRank

ONE_FILE = "autotune_configs.json"
_BEGIN = "autotune_configs"
_ROOT = "flashinfer_autotune_cache"


def are_vllms(names: tuple[str, ...]) -> bool:
    return any(name.startswith(_BEGIN) and (name == ONE_FILE or VllmRank.parse(name)) for name in names)


def _read(listing: Listing, on_error: OnError) -> Cache | None:
    """vLLM omits version and architecture when its cache directory is set by the user."""
    if not are_vllms(listing.files):
        return None
    key, arch, version, root = listing.parents(4)
    placed = root == _ROOT
    ranks = sorted((rank, name) for name in listing.files if (rank := VllmRank.parse(name)))
    names = [name for _, name in ranks] + [ONE_FILE] * (ONE_FILE in listing.files)
    return Cache(
        listing.folder,
        VLLM.name,
        flashinfer=version if placed else None,
        arch=arch if placed else None,
        key=key,
        files=tuple(RankFile(listing.folder / name, None) for name in names),
        leftovers=listing.paths(listing.temporary()),
    )


VLLM = Layout("vllm", "vLLM", (_ROOT,), _read)

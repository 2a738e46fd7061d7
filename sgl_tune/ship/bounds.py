"""How much a bundle may become: on a disk, where equal files are each written, and in memory."""

from __future__ import annotations

from collections.abc import Iterable

from sgl_tune.ship.manifest import BadBundle, BundleManifest, PackedFile
from sgl_tune.ship.places import store_of
from sgl_tune.stores.find import TACTICS
from sgl_tune.units import human_bytes

LARGEST_TACTICS_IN_ALL = 64 << 20  # some 4,000 ranks: all those of a cache are held at once
_STEEPEST = 300  # of what compilers write, nothing shrinks to a tenth of that
_SMALL = 256 << 20
_BLOCK = 4096  # of a disk: what the smallest file takes, and an empty folder


def check_bounds(manifest: BundleManifest, compressed: int) -> None:
    """BadBundle for what would be more than a file of so many compressed bytes comes to."""
    tactics = sum(file.size for path, file in manifest.files.items() if store_of(path) == TACTICS)
    if tactics > LARGEST_TACTICS_IN_ALL:
        most = human_bytes(LARGEST_TACTICS_IN_ALL)
        raise BadBundle(f"its cache files have {human_bytes(tactics)}, and {most} are read at most")
    written = on_disk(manifest.files.values()) + _BLOCK * len(manifest.all_folders())
    if written > max(_SMALL, _STEEPEST * compressed):
        raise BadBundle(
            f"it takes {human_bytes(written)} on a disk, and comes in {human_bytes(compressed)}:"
            " no bundle shrinks to that"
        )


def on_disk(files: Iterable[PackedFile]) -> int:
    """What files take there, in whole blocks."""
    return sum(-(-file.size // _BLOCK) for file in files) * _BLOCK

"""What a layout is: a name, whose it is, the folders it begins with, and its reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.layouts.listing import Listing, OnError


class Layout(NamedTuple):
    """`read` makes a cache of a folder that looks like one; of any other folder None."""

    name: str
    whose: str
    roots: tuple[str, ...]
    read: Callable[[Listing, OnError], Cache | None]

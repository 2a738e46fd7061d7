"""How caches lie on the disk: a reader per layout, and the search for caches."""

from sgl_tune.cache.layouts.cache import (
    BROKEN,
    JOURNAL,
    KEY,
    LOCK,
    MANIFEST,
    Cache,
    RankFile,
    is_private,
    is_temporary,
    is_unfinished,
)
from sgl_tune.cache.layouts.find import find_caches, resolve

__all__ = [
    "BROKEN",
    "JOURNAL",
    "KEY",
    "LOCK",
    "MANIFEST",
    "Cache",
    "RankFile",
    "find_caches",
    "is_private",
    "is_temporary",
    "is_unfinished",
    "resolve",
]

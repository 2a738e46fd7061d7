"""FlashInfer's wrappers, counted as SGLang makes them."""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import MagicMock

_WRAPPERS = ("BatchDecodeWithPagedKVCacheWrapper", "BatchPrefillWithPagedKVCacheWrapper")
_WRAPPERS += ("BatchPrefillWithRaggedKVCacheWrapper", "BatchMLAPagedAttentionWrapper")


def counting_wrappers() -> list[Any]:
    """FlashInfer's, each of which has a workspace of its own."""
    import flashinfer

    made: list[Any] = []
    for name in (*_WRAPPERS, "mla.BatchMLAPagedAttentionWrapper"):
        *inner, last = name.split(".")
        place = flashinfer
        for one in inner:
            place = getattr(place, one)

        def make(*_: Any, _name: str = last, **__: Any) -> Any:
            made.append(_name)
            return MagicMock(name=_name)

        setattr(place, last, make)
        for module in [*sys.modules.values()]:
            if getattr(module, "__name__", "").startswith("sglang.") and last in vars(module):
                setattr(module, last, make)
    return made

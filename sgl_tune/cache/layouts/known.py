"""The layouts there are; the first whose reader knows a folder has it."""

from __future__ import annotations

from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.layouts.layout import Layout
from sgl_tune.cache.layouts.listing import Listing, OnError
from sgl_tune.cache.layouts.managed import MANAGED
from sgl_tune.cache.layouts.sglang import SGLANG
from sgl_tune.cache.layouts.vllm import VLLM

LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (SGLANG, VLLM, MANAGED)}


def read_cache(listing: Listing, on_error: OnError) -> Cache | None:
    found = (layout.read(listing, on_error) for layout in LAYOUTS.values())
    return next((cache for cache in found if cache), None)

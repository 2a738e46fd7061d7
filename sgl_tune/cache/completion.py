"""Return the existing caches' keys for shell completion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sgl_tune.cache.layouts.find import resolve
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.errors import SglTuneError


def keys(ctx: Any) -> list[str]:
    given = ctx.params.get("cache_dir")  # still text during completion
    root = Path(given) if given else default_cache_dir()
    try:
        found = resolve(None, root, on_error=lambda error: None)
    except (OSError, SglTuneError):
        return []
    return sorted({cache.key for cache in found if cache.key})

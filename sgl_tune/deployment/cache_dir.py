"""The folder where a server of this user keeps its caches."""

import os
from collections.abc import Mapping
from pathlib import Path


def default_cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return SGLang's cache folder by SGLang's own rule: `~` is expanded in its default only."""
    set_by_user = environ.get("SGLANG_CACHE_DIR")
    return Path(set_by_user) if set_by_user else Path("~/.cache/sglang").expanduser()


def demo_cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in which the embedded demo keeps its caches."""
    return Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sgl-tune" / "demo"

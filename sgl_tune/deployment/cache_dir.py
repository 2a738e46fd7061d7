"""The folder where a server of this user keeps its caches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from sgl_tune.cli.parameters import Option
from sgl_tune.errors import UsageError

CacheDirOption = Annotated[
    Path | None,
    Option(
        "--cache-dir",
        help="Default: $SGLANG_CACHE_DIR or ~/.cache/sglang.",
        metavar="DIR",
        show_default=False,
    ),
]


def default_cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return SGLang's cache folder by SGLang's own rule: `~` is expanded in its default only."""
    set_by_user = environ.get("SGLANG_CACHE_DIR")
    return Path(set_by_user) if set_by_user else Path("~/.cache/sglang").expanduser()


def demo_cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in which the embedded demo keeps its caches."""
    return Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sgl-tune" / "demo"


def place_named(flag: str, path: str) -> str:
    """Return an absolute path as the server sees it. It need not exist on this machine."""
    if not path.startswith("/"):
        raise UsageError(f"{flag} {path} is no absolute path", "give the path as the server will see it")
    return path.rstrip("/") or "/"

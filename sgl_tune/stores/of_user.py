"""Where a server of this user looks for its stores."""

from __future__ import annotations

import contextlib
import getpass
import os
from collections.abc import Mapping
from pathlib import Path

from runtime.server.stores import places
from sgl_tune.stores.find import STORE_IDS, Stored
from sgl_tune.stores.variables import release_meant


def stores_of_this_user(only: str | None, environment: Mapping[str, str] = os.environ) -> list[Stored]:
    """The installed release's, else the newest known."""
    release = release_meant(None).release
    home = environment.get("HOME") or str(Path.home())
    found = places(release, environment, home, _user())
    return [
        Stored(id, Path(place), Path(place))
        for id in STORE_IDS
        if only in (None, id)
        for place in found[id]
        if Path(place).is_dir()
    ]


def _user() -> str:
    with contextlib.suppress(KeyError, OSError, ImportError):
        return getpass.getuser()
    return f"uid_{os.getuid()}"

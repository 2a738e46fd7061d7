"""What a start wrote into the stores: a store that held everything is only read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from runtime.server.releases import RELEASES
from runtime.server.stores import STORES, places

MOST_FILES = 500_000


@dataclass(frozen=True, slots=True)
class Written:
    store: str
    folder: str
    files: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def written_since(moment: float, environment: Mapping[str, str]) -> tuple[Written, ...]:
    """Wherever a server of any release would look with these variables."""
    found = []
    home, user = environment.get("HOME", "/root"), environment.get("USER", "root")
    for store in STORES:
        folders = {f: None for row in RELEASES for f in places(row, environment, home, user)[store.id]}
        for folder in _without_inner(folders):
            sizes = list(_sizes(folder, moment))
            if sizes:
                found.append(Written(store.id, folder, len(sizes), sum(sizes)))
    return tuple(found)


def _without_inner(folders: Mapping[str, None]) -> Iterator[str]:
    for folder in folders:
        if not any(folder.startswith(f"{other}/") for other in folders):
            yield folder


def _sizes(folder: str, moment: float) -> Iterator[int]:
    seen = 0
    for place, _, names in os.walk(folder):
        for name in names:
            seen += 1
            if seen > MOST_FILES:
                return
            try:
                status = os.lstat(os.path.join(place, name))  # noqa: PTH118
            except OSError:
                continue
            if status.st_mtime >= moment:
                yield status.st_size

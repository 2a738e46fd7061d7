"""Find what a start wrote into the stores. A complete store is only read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from runtime.sglang.kept_files import ROWS
from sgl_tune.stores.rows import STORES, places

MOST_FILES = 500_000


@dataclass(frozen=True, slots=True)
class Written:
    store: str
    folder: str
    files: int
    bytes: int


def written_since(moment: float, environment: Mapping[str, str]) -> tuple[Written, ...]:
    """Return what was written where a server with these variables would look."""
    found = []
    for store in STORES:
        for folder in folders_of(store.id, environment):
            sizes = [status.st_size for _, _, status in fresh_files(folder, moment)]
            if sizes:
                found.append(Written(store.id, folder, len(sizes), sum(sizes)))
    return tuple(found)


def folders_of(store: str, environment: Mapping[str, str]) -> Iterator[str]:
    home, user = environment.get("HOME", "/root"), environment.get("USER", "root")
    everywhere = (places(row, environment, home, user)[store] for row in ROWS)
    folders = dict.fromkeys(chain.from_iterable(everywhere))
    for folder in folders:
        if not any(folder.startswith(f"{other}/") for other in folders):
            yield folder


def fresh_files(folder: str, moment: float) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield folder, name and status of each file that was written since `moment`, except by sgl-tune."""
    seen = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".sgl-tune-")]
        for name in names:
            seen += 1
            if seen > MOST_FILES:
                return
            try:
                status = os.lstat(os.path.join(place, name))  # noqa: PTH118
            except OSError:
                continue
            if status.st_mtime >= moment:
                yield place, name, status

"""Find the stores in a folder whose rank files are listed. If there are none, as usual, the code that
describes stores is not imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sgl_tune.cli.out import Output
from sgl_tune.stores.find import stores_below

if TYPE_CHECKING:
    from sgl_tune.stores.describe import Summary


def stores_beside(out: Output, folder: Path) -> list[Summary]:
    found = stores_below(out, folder) if folder.is_dir() else []
    if not found:
        return []
    from sgl_tune.stores.describe import summarise

    return summarise(found, keep=False)

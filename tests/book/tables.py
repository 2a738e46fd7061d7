"""All tables of the book beside each other: `python -m tests.book.tables` writes them anew."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.book.conditions import CONDITIONS_OF
from tests.book.deployed import DEPLOYED_OF
from tests.book.families import FAMILIES_OF
from tests.book.functions import TABLES_OF
from tests.book.helpers import HELPERS_OF
from tests.book.keys import KEYS_OF
from tests.book.members import MEMBERS_OF
from tests.book.methods import METHODS_OF
from tests.book.neighbours import NEIGHBOURS_OF
from tests.book.quantizations import QUANTIZATIONS_OF
from tests.book.rows import ROWS_OF, Row
from tests.book.unmet import UNMET_OF

KEPT = Path(__file__).with_name("tables.jsonl.gz")
TABLES: dict[str, Callable[[], Iterator[Row]]] = {
    **ROWS_OF,
    **QUANTIZATIONS_OF,
    **METHODS_OF,
    **TABLES_OF,
    **KEYS_OF,
    **FAMILIES_OF,
    **NEIGHBOURS_OF,
    **MEMBERS_OF,
    **CONDITIONS_OF,
    **HELPERS_OF,
    **DEPLOYED_OF,
    **UNMET_OF,
}


def made(name: str) -> dict[str, Any]:
    rows = [*TABLES[name]()]
    found: dict[str, Any] = json.loads(json.dumps(dict(rows)))
    assert len(found) == len(rows), f"{name}: two rows of one name"
    return found


@cache
def kept() -> dict[str, dict[str, Any]]:
    with gzip.open(KEPT, "rt") as file:
        return {name: rows for name, rows in map(json.loads, file)}


def write() -> None:
    told = "".join(json.dumps([name, made(name)]) + "\n" for name in TABLES)
    KEPT.write_bytes(gzip.compress(told.encode(), mtime=0))


if __name__ == "__main__":
    write()

"""The page of models lists the families that there are."""

from __future__ import annotations

import re
from pathlib import Path

from runtime.server.decoders.known import FAMILIES
from runtime.server.decoders.wrappers import WRAPPERS

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_every_family_is_listed_and_no_other() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    names = (" ".join(row.split("|")[1:-2]) for row in rows[1:])  # of the last column are models
    listed = [name for row in names for name in re.findall(r"`(\w[\w.-]*)`", row)]
    assert sorted(listed) == sorted({**FAMILIES, **WRAPPERS})

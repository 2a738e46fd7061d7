"""What a GPU keeps of the host's memory that it reaches, as was measured: an entry for each page."""

from __future__ import annotations

_PAGE, _ENTRY = 4096, 8


def page_tables(reached: int) -> int:
    return reached // _PAGE * _ENTRY

"""Write a file whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sgl_tune.errors import UsageError
from sgl_tune.memory.html import render_page


def write_text(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def write_page(path: Path, data: Mapping[str, Any]) -> None:
    write_text(path, render_page(data))

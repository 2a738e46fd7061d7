"""Write a file whole or not at all; what a disk refuses is the user's to mend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sgl_tune.errors import UsageError
from sgl_tune.memory.html import render_page


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """The name to write to; it becomes `path` when everything is in it. A device would be lost to that."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} cannot be written: it is there and is no regular file")
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    with written(path) as part:
        part.write_text(text, encoding="utf-8")


def write_page(path: Path, data: Mapping[str, Any]) -> None:
    write_text(path, render_page(data))

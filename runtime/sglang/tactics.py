"""Tuned files that a start finds as its own, in the environment of the server that will read them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from runtime.sglang.kept_files import TILES


@dataclass(frozen=True)
class Tactics:
    """Tactic files, by their names below a server's cache directory, for the model as typed. `metadata`: the
    strings that FlashInfer compares; for missing ones the start's own are used. `tiles`: the folder of
    Triton's configurations that the server is given, if it is not SGLang's own."""

    files: Mapping[str, bytes]
    metadata: Mapping[str, str] = field(default_factory=dict)
    tiles: Path | None = None

    @property
    def digest(self) -> str:
        named = {name: sha256(raw).hexdigest() for name, raw in self.files.items()}
        marks = sorted(_marks(self.tiles)) if self.tiles else None
        return sha256(json.dumps([named, dict(self.metadata), marks], sort_keys=True).encode()).hexdigest()

    def laid(self, folder: Path) -> dict[str, Any]:
        """Write the files into a folder that the start can read, and return the request's form."""
        for name, raw in self.files.items():
            parts = PurePosixPath(name).parts
            if ".." in parts or name.startswith("/"):
                raise ValueError(f"{name} is not below a cache directory")
            file = folder.joinpath(*parts)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(raw)
        variables = {TILES: str(self.tiles)} if self.tiles else {}
        return {"folder": str(folder), "metadata": dict(self.metadata), "variables": variables}


def _marks(folder: Path) -> Iterator[tuple[str, int, int]]:
    yield str(folder), 0, 0
    for file in folder.rglob("*.json"):
        status = file.lstat()
        yield str(file), status.st_size, status.st_mtime_ns

"""Files of tactics that a start finds as its own, in the environment of the server that will read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any


@dataclass(frozen=True)
class Tactics:
    """Tactic files, by their names below a server's cache directory, for the model as typed. `metadata`: the
    strings that FlashInfer compares; for missing ones the start's own are used."""

    files: Mapping[str, bytes]
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        named = {name: sha256(raw).hexdigest() for name, raw in self.files.items()}
        return sha256(json.dumps([named, dict(self.metadata)], sort_keys=True).encode()).hexdigest()

    def laid(self, folder: Path) -> dict[str, Any]:
        """Write the files into a folder that the start can read, and return the request's form."""
        for name, raw in self.files.items():
            parts = PurePosixPath(name).parts
            if ".." in parts or name.startswith("/"):
                raise ValueError(f"{name} is not below a cache directory")
            file = folder.joinpath(*parts)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(raw)
        return {"folder": str(folder), "metadata": dict(self.metadata)}

"""The result of an export."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from sgl_tune.cache.store import Written
from sgl_tune.export.source import Source
from sgl_tune.export.store import Stored


class Reader(str, Enum):
    flashinfer_store = "flashinfer-store"
    vllm = "vllm"


@dataclass(frozen=True, slots=True)
class Exported:
    """An export's result. `hits`: entries that FlashInfer's own reader found; None if none was asked."""

    to: Reader
    source: Source
    folder: Path
    files: tuple[Path, ...]
    entries: int
    added: int
    changed: int
    hits: int | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def is_good(self) -> bool:
        return self.hits in (None, self.entries)

    def to_json(self) -> dict[str, Any]:
        names = ("entries", "added", "changed", "hits", "notes")
        return {
            "to": self.to.value,
            "source": str(self.source.path),
            "environment": dict(self.source.environment),
            "folder": str(self.folder),
            "files": [str(path) for path in self.files],
            **{name: getattr(self, name) for name in names},
        }


def of_store(source: Source, stored: Stored) -> Exported:
    notes, lazy = [], stored.hits - stored.in_memory
    if stored.without_policy:
        notes.append(
            f"{stored.without_policy} entries do not say how they were measured: they serve, and a server in"
            " tuning mode tunes them again"
        )
    if lazy > 0:
        notes.append(f"{lazy} entries are read at their first lookup, not when a server attaches the store")
    counts = (stored.entries, stored.added, stored.changed, stored.hits)
    return Exported(Reader.flashinfer_store, source, stored.folder, (), *counts, tuple(notes))


def of_vllm(source: Source, folder: Path, written: Sequence[Written]) -> Exported:
    notes = [note for one in written for note in one.notes]
    notes.append(
        "where all ranks have such a file, vLLM tunes nothing more: what it asks for beyond these entries"
        " runs untuned, and which shapes it asks for is not known here"
    )
    paths = tuple(path for one in written for path in one.paths)
    added, changed = sum(one.added for one in written), sum(one.changed for one in written)
    entries = max(one.entries for one in written)
    unique = tuple(dict.fromkeys(notes))
    return Exported(Reader.vllm, source, folder, paths, entries, added, changed, notes=unique)

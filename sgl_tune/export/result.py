"""The result of an export. FlashInfer's managed store is written and read back with FlashInfer's own code,
in a separate process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from sgl_tune.cache.folder import open_folder
from sgl_tune.cache.store import Written
from sgl_tune.deployment.versions import installed_version
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.export.source import Source
from sgl_tune.processes.crew import Crew
from sgl_tune.processes.scratch import scratch

_SECONDS = 600  # for the writer's process
WRITE, WRITTEN, REFUSED = "write", "written", "refused"


def check_writer(source: Source) -> None:
    """Refuse to write with another FlashInfer than the cache's own, because each defines its layout."""
    if not source.ways.has_v2:
        raise UsageError(
            f"FlashInfer {source.flashinfer} has no managed store: 0.7.0 brought it",
            "--to vllm, or warm for a newer one",
        )
    here = installed_version("flashinfer")
    if here != source.flashinfer:
        raise UsageError(
            f"FlashInfer {source.flashinfer} tuned this cache and has to write its store;"
            f" {f'{here} is' if here else 'none is'} installed here",
            "run it in the server's environment; no GPU is needed",
        )


def write_store(source: Source, root: Path, tick: Callable[[], None]) -> dict[str, Any]:
    """Write the store; return what its writer says: see `store_writer.write`."""
    check_writer(source)
    command = {"root": str(root), "environment": dict(source.environment), "entries": source.entries()}
    # FlashInfer's writer would follow a link here.
    open_folder(root, root, create=True).close()
    with scratch() as private, Crew("sgl_tune.export.store_writer", 1, private) as crew:
        crew.members[0].send(WRITE, **command)
        said = crew.answer("FlashInfer's writer", _SECONDS, tick)
    if said["kind"] == REFUSED:
        raise WorkFailed(said["message"], said["remedy"])
    return said


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
    notes: tuple[str, ...] = ()

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


def of_store(source: Source, stored: Mapping[str, Any]) -> Exported:
    notes, lazy = [], stored["hits"] - stored["in_memory"]
    if stored["without_policy"]:
        notes.append(
            f"{stored['without_policy']} entries do not say how they were measured: they serve, and a server"
            " in tuning mode tunes them again"
        )
    if lazy > 0:
        notes.append(f"{lazy} entries are read at their first lookup, not when a server attaches the store")
    counts = {name: stored[name] for name in ("entries", "added", "changed", "hits")}
    folder = Path(stored["folder"])
    return Exported(Reader.flashinfer_store, source, folder, (), **counts, notes=tuple(notes))


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

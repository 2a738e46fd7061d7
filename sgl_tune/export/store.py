"""Write FlashInfer's managed store and read it back with FlashInfer's own code, in a separate process."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgl_tune.cache.folder import open_folder
from sgl_tune.deployment.versions import installed_version
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.export.source import Source
from sgl_tune.processes.crew import Crew
from sgl_tune.processes.scratch import scratch

_SECONDS = 600  # for the writer's process
WRITE, WRITTEN, REFUSED = "write", "written", "refused"


@dataclass(frozen=True, slots=True)
class Stored:
    """The written store. `hits`: entries that a lookup in it finds. `in_memory`: entries that a server loads
    when it attaches the store. `without_policy`: entries that serve, but are tuned again anyway.
    """

    folder: Path
    entries: int
    added: int
    changed: int
    hits: int
    in_memory: int
    without_policy: int


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


def write_store(source: Source, root: Path, tick: Callable[[], None]) -> Stored:
    check_writer(source)
    entries = source.entries()
    command = {"root": str(root), "environment": dict(source.environment), "entries": entries}
    # FlashInfer's writer would follow a link here.
    open_folder(root, root, create=True).close()
    with scratch() as private, Crew("sgl_tune.export.store_writer", 1, private) as crew:
        crew.members[0].send(WRITE, **command)
        return _stored(crew.answer("FlashInfer's writer", _SECONDS, tick), entries)


def _stored(event: dict[str, Any], entries: dict[str, Any]) -> Stored:
    if event["kind"] == REFUSED:
        raise WorkFailed(event["message"], event["remedy"])
    counts = {name: event[name] for name in ("added", "changed", "hits", "in_memory", "without_policy")}
    return Stored(Path(event["folder"]), len(entries), **counts)

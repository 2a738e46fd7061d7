"""What every warm does with the folders it fills, whoever planned them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from sgl_tune.cache.record import read_cache_file
from sgl_tune.cache.remove import forget
from sgl_tune.cache.store import write_group
from sgl_tune.cache.transaction import locked
from sgl_tune.warm.job import tuned_path


class PlannedOp(Protocol):
    @property
    def keys(self) -> tuple[str, ...]: ...


class PlannedCache(Protocol):
    @property
    def folder(self) -> str: ...
    @property
    def paths(self) -> tuple[str, ...]: ...
    @property
    def ops(self) -> Sequence[PlannedOp]: ...
    def to_json(self) -> dict[str, Any]: ...


class Named(Protocol):
    """The server that is warmed."""

    @property
    def name(self) -> str: ...
    @property
    def model_path(self) -> str: ...
    @property
    def cache_dir(self) -> Path: ...


class Planned(Protocol):
    @property
    def deployment(self) -> Named: ...
    @property
    def caches(self) -> Sequence[PlannedCache]: ...
    def to_json(self) -> dict[str, Any]: ...


@contextmanager
def writable(plan: Planned) -> Iterator[None]:
    """Tried before the search and not after it; a folder that was made for nothing goes."""
    root = plan.deployment.cache_dir
    folders = [root / cache.folder for cache in plan.caches]
    try:
        for folder in folders:
            with locked(folder):
                pass
        yield
    except BaseException:
        for folder in folders:
            forget(folder, root)
        raise


def keep_decided(plan: Planned, folder: Path, replacing: bool) -> int:
    """Ops that were decided on all workers before the search ended: complete rank sets of fewer entries."""
    kept = 0
    for number, cache in enumerate(plan.caches):
        path = tuned_path(folder, number)
        if path.exists():
            file = read_cache_file(path)
            paths = [plan.deployment.cache_dir / name for name in cache.paths]
            written = write_group(paths, file.entries, file.metadata or {}, replace_conflicting=replacing)
            kept += written.added
    return kept


def what_is_kept(kept: int | None) -> str:
    if kept is None:
        return "nothing was written"
    if kept:
        return f"{kept} decided entries are kept: the same command goes on from there"
    return "the cache is as it was"

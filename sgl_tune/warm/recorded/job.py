"""What a launcher hands to workers that replay a record: the calls of each cache, where results go."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runtime.record.calls import Call
from runtime.record.checked import read


@dataclass(frozen=True, slots=True)
class CallCache:
    """One cache: its files on this node, and the calls that ask for all of its entries."""

    calls: tuple[Call, ...]
    files: tuple[Path, ...]

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(key for call in self.calls for key in call.keys)


@dataclass(frozen=True, slots=True)
class CallJob:
    """`folder` is private to this warm: what FlashInfer loads and saves on the way is there."""

    folder: Path
    caches: tuple[CallCache, ...]
    device: str
    gpus: tuple[int, ...]
    replacing: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "caches": [
                {"calls": [asdict(call) for call in cache.calls], "files": list(map(str, cache.files))}
                for cache in self.caches
            ],
            "device": self.device,
            "gpus": list(self.gpus),
            "replacing": self.replacing,
        }


def read_call_job(data: Any) -> CallJob:
    caches = tuple(
        CallCache(
            read(tuple[Call, ...], cache["calls"], "job.calls"),
            tuple(map(Path, cache["files"])),
        )
        for cache in data["caches"]
    )
    return CallJob(Path(data["folder"]), caches, data["device"], tuple(data["gpus"]), data["replacing"])

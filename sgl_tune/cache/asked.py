"""What a server's start looks up in a cache: its files, and the entries of each tuned op."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sgl_tune.units import count

AskedBy = Literal["tuning", "serving"]
Tunes = Literal["nothing", "planned", "unplanned"]


@dataclass(frozen=True, slots=True)
class ExpectedEntry:
    """One lookup. `tuning`: the server's own autotune makes it. `serving`: only its requests do."""

    key: str
    bucket: int
    asked_by: AskedBy


@dataclass(frozen=True, slots=True)
class TunedOp:
    op: str
    runner: str
    policy: tuple[Any, ...]
    entries: tuple[ExpectedEntry, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(entry.key for entry in self.entries)

    @property
    def buckets(self) -> tuple[int, ...]:
        return tuple(sorted({entry.bucket for entry in self.entries}))

    @property
    def serving_only(self) -> tuple[int, ...]:
        return tuple(sorted({entry.bucket for entry in self.entries if entry.asked_by == "serving"}))

    def to_json(self) -> dict[str, Any]:
        names = ("op", "runner", "buckets", "keys", "policy", "serving_only")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class CachePlan:
    """One key's folder. `groups`: files that a server's start expects to be equal byte for byte."""

    folder: str
    groups: tuple[tuple[str, ...], ...]
    ops: tuple[TunedOp, ...]
    key_parts: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.folder.rpartition("/")[2]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for group in self.groups for path in group)

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "key_parts": list(self.key_parts),
            "files": list(self.paths),
            "groups": [list(group) for group in self.groups],
            "ops": [op.to_json() for op in self.ops],
        }


def told(caches: Sequence[CachePlan]) -> str:
    ops = [op for cache in caches for op in cache.ops]
    entries = count(sum(len(op.keys) for op in ops), "entry")
    files = count(sum(len(cache.paths) for cache in caches), "file")
    return f"{count(len(ops), 'op')}, {entries} in {files}"


class Timed(NamedTuple):
    """An entry that was timed again, in milliseconds. None: it failed, for the reason in `failed`."""

    op: str
    bucket: int
    key: str
    tactic: Any
    best_ms: float | None
    default_ms: float | None
    failed: str | None = None


class Gap(NamedTuple):
    """Something that the server tunes (`what`), and `why` its entries cannot be predicted."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a start tunes. `gaps`: entries that cannot be predicted. `obstacle`: why no warm can tune even
    the predicted ones."""

    tunes: Tunes
    says: str
    gaps: tuple[Gap, ...] = ()
    obstacle: str | None = None

    @property
    def exit_code(self) -> int:
        return int(self.tunes == "unplanned" or self.obstacle is not None)

    def to_json(self) -> dict[str, Any]:
        said = {"tunes": self.tunes, "says": self.says, "obstacle": self.obstacle, "advice": None}
        return {**said, "unplanned": [gap._asdict() for gap in self.gaps]}

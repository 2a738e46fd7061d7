"""What a machine holds for a start, small enough to send: digests of what decides a verdict. A file is
judged twice: its own machine judges it by itself, and the machine that reads all lines judges it for a
deployment and for the environment of its server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

from runtime.flashinfer.versions import HOT, FlashInfer
from runtime.record.checked import WrongMember
from sgl_tune.cache.loader import Loaded
from sgl_tune.units import shown
from sgl_tune.verify.findings import Finding

if TYPE_CHECKING:
    from sgl_tune.cache.asked import TunedOp

Fate = Literal["hit", "partial", "ignored", "replaced", "deleted", "crash", "missing", "unknown"]
_BYTES = 6
_LONGEST = 400
LENGTH = 2 * _BYTES


@dataclass(frozen=True, slots=True)
class Told:
    """A finding in few words."""

    code: str
    severity: Literal["info", "warning", "error"]
    message: str

    @classmethod
    def of(cls, found: Finding, longest: int = 240) -> Told:
        message = found.message if len(found.message) <= longest else f"{found.message[: longest - 3]}..."
        return cls(found.code, found.severity.value, message)


@dataclass(frozen=True, slots=True)
class Content:
    """One content and the rank files that have it. `alone`: the verdict for the environment where it was
    tuned. `signature`: equal if SGLang calls two files equal; None if it cannot parse the file. `lookups`:
    sorted digests of all entries that a lookup finds; None if there are too many, or nobody looked."""

    files: tuple[str, ...]
    alone: Fate
    signature: str | None = None
    environment: dict[str, str] | None = None
    entries: int = 0
    lookups: str | None = ""
    findings: tuple[Told, ...] = ()

    @property
    def is_unread(self) -> bool:
        """Whether this is a link out of the cache, which the server follows and sgl-tune does not."""
        return self.signature is None and self.lookups is None


@dataclass(frozen=True, slots=True)
class HeldCache:
    """A cache of tactics. `path`: below the cache directory. `findings`: those of the folder itself."""

    path: str
    contents: tuple[Content, ...] = ()
    findings: tuple[Told, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldStore:
    """A store: its items counted by what the next start does with them. `names`: digests of the items that
    it finds, of many only the smallest."""

    store: str
    path: str
    found: int = 0
    built_again: int = 0
    not_looked_at: int = 0
    ends_start: int = 0
    names: str = ""
    findings: tuple[Told, ...] = ()

    def __post_init__(self) -> None:
        if min(self.found, self.built_again, self.not_looked_at, self.ends_start) < 0:
            raise WrongMember(f"a number of its store {shown(self.store)} is less than none")


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a machine holds. `unseen`: what could not be opened, or was too much to list."""

    cache_dir: str
    user: str = ""
    caches: tuple[HeldCache, ...] = ()
    stores: tuple[HeldStore, ...] = ()
    unseen: tuple[str, ...] = ()


def digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).hexdigest()


def joined(digests: Iterable[str], most: int) -> str:
    """Return the digests as one text, only the smallest if there are too many. Two lists that were cut
    like this can be compared up to the smaller end."""
    return "".join(sorted(set(digests))[:most])


def split(text: str) -> list[str]:
    return [text[start : start + LENGTH] for start in range(0, len(text), LENGTH)]


def missing(wanted: str, held: str, most: int) -> int:
    """Return how many wanted digests are not held; at least so many, if a list was cut."""
    have = split(held)
    known = set(have)
    end = have[-1] if len(have) >= most else None
    return sum(one not in known and (end is None or one < end) for one in split(wanted))


def lookups_of(loaded: Loaded, reader: FlashInfer) -> list[str]:
    """Return one digest per entry, of what a lookup compares: the key, in some versions runner and policy."""
    return [
        _lookup(key, choice[0], loaded.policies.get(key, HOT), reader)
        for key, choice in loaded.entries.items()
    ]


def asked_lookups(op: TunedOp, reader: FlashInfer, asked_by: str) -> Mapping[str, int]:
    """Return the digests by which an op's lookups find their entries, with the bucket of each."""
    return {
        _lookup(entry.key, op.runner, op.policy, reader): entry.bucket
        for entry in op.entries
        if entry.asked_by == asked_by
    }


def _lookup(key: str, runner: Any, policy: Any, reader: FlashInfer) -> str:
    parts = [key]
    if reader.matches_runners:
        parts.append(shown(runner, _LONGEST))
    if reader.keeps_policies:
        parts.append(shown(tuple(policy), _LONGEST))
    return digest("\0".join(parts))

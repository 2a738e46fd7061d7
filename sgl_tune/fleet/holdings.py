"""What a machine holds of a start, small enough to travel: digests of what decides a verdict.

A file is judged twice. What it is by itself, its own machine says. What a deployment makes of it, and the
environment of the server that reads it, is judged where the lines of all machines are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runtime.record.checked import WrongMember
from sgl_tune.units import shown
from sgl_tune.verify.findings import Finding

Fate = Literal["hit", "partial", "ignored", "replaced", "deleted", "crash", "missing", "unknown"]


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
    """One content and the rank files that have it. `alone` is the verdict where it was tuned; `signature` is
    equal where SGLang holds two files equal, None where it can parse none. `lookups`: a digest of each entry
    that a lookup finds, sorted and written as one; None where they were too many, or nobody looked."""

    files: tuple[str, ...]
    alone: Fate
    signature: str | None = None
    environment: dict[str, str] | None = None
    entries: int = 0
    lookups: str | None = ""
    findings: tuple[Told, ...] = ()

    @property
    def is_unread(self) -> bool:
        """A link that leads out of the cache: the server follows it, and nobody else."""
        return self.signature is None and self.lookups is None


@dataclass(frozen=True, slots=True)
class HeldCache:
    """`path` is below the cache directory; `findings` are the folder's own."""

    path: str
    contents: tuple[Content, ...] = ()
    findings: tuple[Told, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldStore:
    """Its items by what the next start does with them; `names` are digests of those that it finds, and the
    smallest of them where they are many."""

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
    """`unseen`: what could not be looked into, or was too much to tell."""

    cache_dir: str
    user: str = ""
    caches: tuple[HeldCache, ...] = ()
    stores: tuple[HeldStore, ...] = ()
    unseen: tuple[str, ...] = ()

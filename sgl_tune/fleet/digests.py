"""Carry many names as short digests of a fixed length, sorted and joined into one text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from runtime.flashinfer.versions import HOT, FlashInfer
from sgl_tune.cache.loader import Loaded
from sgl_tune.units import shown

if TYPE_CHECKING:
    from sgl_tune.cache.asked import TunedOp

_BYTES = 6
_LONGEST = 400
LENGTH = 2 * _BYTES


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

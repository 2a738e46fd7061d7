"""Whether a file holds what a deployment's server will ask for."""

from __future__ import annotations

from collections.abc import Sequence

from sgl_tune.cache.entries import Lookups, lookups_of
from sgl_tune.cache.findings import Finding, finding
from sgl_tune.cache.keys import TunedOp
from sgl_tune.cache.loader import Loaded
from sgl_tune.cache.op_shapes import HOT

_WORDS = {
    "tuning": "the server tunes {} at its start",
    "serving": "nothing tunes {}: requests of these sizes run on the fallback tactic for ever",
}


def missing_keys(ops: Sequence[TunedOp], loaded: Loaded, version: str) -> list[Finding]:
    """One finding for what the start would tune, and one for what only requests will miss."""
    lookups = lookups_of(version)
    found = []
    for asked_by, sentence in _WORDS.items():
        names = []
        for op in ops:
            buckets = [
                entry.bucket
                for entry in op.entries
                if entry.asked_by == asked_by and not _hits(entry.key, op, loaded, lookups)
            ]
            if buckets:
                names.append(f"{op.op.rsplit('::', 1)[-1]} at {_ranges(sorted(buckets))}")
        if names:
            message = f"it lacks {'; '.join(names)}: {sentence.format('them')}"
            found.append(finding("keys-missing", message, "sgl-tune warm with the server's own flags"))
    return found


def _hits(key: str, op: TunedOp, loaded: Loaded, lookups: Lookups) -> bool:
    choice = loaded.entries.get(key)
    if choice is None or choice[0] != op.runner:
        return False
    return not lookups.compare_policies or loaded.policies.get(key, HOT) == op.policy


def _ranges(buckets: list[int]) -> str:
    if len(buckets) <= 4:
        return ", ".join(map(str, buckets))
    return f"{len(buckets)} buckets from {buckets[0]} to {buckets[-1]}"


def expected_entries(ops: Sequence[TunedOp]) -> set[str]:
    return {key for op in ops for key in op.keys}

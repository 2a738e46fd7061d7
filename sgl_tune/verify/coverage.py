"""Check whether a file contains the entries that a deployment's server will look up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runtime.flashinfer.versions import HOT, FlashInfer
from sgl_tune.cache.loader import Loaded
from sgl_tune.cache.record import KeyParts, Profile, parse_key
from sgl_tune.units import count
from sgl_tune.verify.entries import entry_name, miss_seconds, some
from sgl_tune.verify.expected import WARM, Expected
from sgl_tune.verify.findings import Finding, Severity, finding

if TYPE_CHECKING:
    from sgl_tune.cache.asked import TunedOp

_UNTUNED = "nothing to do: neither the server nor sgl-tune tunes them"
_FATES = {
    "tuning": "the server tunes these at its start",
    "serving": "nothing ever tunes these, requests of such sizes run on the fallback tactic",
}


class Coverage:
    """The lookups of one deployment, compared with the table of entries that a file loads as."""

    def __init__(self, wants: Expected) -> None:
        self._wants, self._ops = wants, wants.ops
        self.keys = {key for op in wants.ops for key in op.keys}

    def findings(self, loaded: Loaded, reader: FlashInfer) -> list[Finding]:
        unused = [key for key in loaded.entries if key not in self.keys]
        differing = self._differing_extras(unused)
        rest = [key for key in unused if key not in differing]
        return [
            *self._missing(loaded, reader),
            *_other_options(differing, self._wants.way_out),
            *_unused(rest, len(loaded.entries)),
        ]

    def _missing(self, loaded: Loaded, reader: FlashInfer) -> list[Finding]:
        none = not any(_hits(key, op, loaded, reader) for op in self._ops for key in op.keys)
        found = []
        for asked_by, fate in _FATES.items():
            names = [
                f"{op.op.rsplit('::', 1)[-1]} at {_buckets(buckets)}"
                for op in self._ops
                if (buckets := _missing_buckets(op, asked_by, loaded, reader))
            ]
            if names:
                severity = Severity.ERROR if none else None
                message = f"it lacks {'; '.join(names)}: {fate}"
                way_out = self._wants.way_out
                way_out = way_out if way_out == WARM or asked_by == "tuning" else _UNTUNED
                found.append(finding("keys-missing", message, way_out, severity))
        return found

    def _differing_extras(self, unused: Sequence[str]) -> dict[str, tuple[KeyParts, KeyParts]]:
        """Return the entries with the right op and shapes but other options, from another SGLang or flag."""
        asked = {_shapes(parts): parts for key in self.keys if (parts := parse_key(key))}
        pairs = {key: (parts, asked.get(_shapes(parts))) for key in unused if (parts := parse_key(key))}
        return {key: (parts, wanted) for key, (parts, wanted) in pairs.items() if wanted}


def _shapes(parts: KeyParts) -> tuple[str, str, Profile]:
    return parts.op, parts.runner, parts.profile


def _missing_buckets(op: TunedOp, asked_by: str, loaded: Loaded, reader: FlashInfer) -> list[int]:
    asked = (entry for entry in op.entries if entry.asked_by == asked_by)
    return sorted({entry.bucket for entry in asked if not _hits(entry.key, op, loaded, reader)})


def _hits(key: str, op: TunedOp, loaded: Loaded, reader: FlashInfer) -> bool:
    choice = loaded.entries.get(key)
    if choice is None or (reader.matches_runners and choice[0] != op.runner):
        return False
    return not reader.keeps_policies or loaded.policies.get(key, HOT) == op.policy


def _buckets(buckets: list[int]) -> str:
    if len(buckets) <= 4:
        return ", ".join(map(str, buckets))
    return f"{len(buckets)} buckets from {buckets[0]} to {buckets[-1]}"


def _other_options(differing: Mapping[str, tuple[KeyParts, KeyParts]], way_out: str) -> list[Finding]:
    if not differing:
        return []
    has, asked = next(iter(differing.values()))
    places = [
        f"option {place} of {len(asked.extras)} is {_option(has, place)}, asked {_option(asked, place)}"
        for place in range(1, max(len(has.extras), len(asked.extras)) + 1)
        if _option(has, place) != _option(asked, place)
    ]
    message = f"{count(len(differing), 'entry')} of the right shapes, but {some(places)}"
    return [finding("other-options", message, f"{way_out}: options follow the SGLang version and its flags")]


def _option(parts: KeyParts, place: int) -> str:
    return parts.extras[place - 1] if place <= len(parts.extras) else "absent"


def _unused(keys: Sequence[str], total: int) -> list[Finding]:
    """Return a finding for unused entries. They are harmless, but make each lookup that misses slower."""
    if not keys:
        return []
    cost = (miss_seconds(total) - miss_seconds(total - len(keys))) * 1e6
    message = (
        f"{len(keys)} of {total} entries ({some([entry_name(key) for key in keys])}): nothing this deployment"
        f" asks for; about {cost:.0f} us more for a lookup that misses, an estimate"
    )
    return [finding("unused-entries", message)]

"""How a file of configurations was tuned, in a small file (the note) beside it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from runtime.record.checked import read

SCHEMA = 1


@dataclass(frozen=True)
class Bucket:
    """A bucket: milliseconds of the layer's forward, measured in turns, and the gain over the server's own
    choice. `changed`: the gain was beyond noise."""

    present_ms: float
    best_ms: float
    gain: float
    changed: bool


@dataclass(frozen=True)
class Provenance:
    """How a file was tuned. `digest`: the file's; another digest shows a later change. `seconds`: of each
    step."""

    schema_version: int
    gpu: str
    triton: str
    sglang: str
    digest: str
    seconds: dict[str, float]
    buckets: dict[str, Bucket]

    @property
    def says(self) -> str:
        changed = [one.gain for one in self.buckets.values() if one.changed]
        if not changed:
            return "no batch size changed"
        span = f"{min(changed):.2f} to {max(changed):.2f}x faster"
        return f"{len(changed)} of {len(self.buckets)} batch sizes changed, {span}"

    def to_bytes(self) -> bytes:
        return (json.dumps(asdict(self), indent=1) + "\n").encode()


def digest_of(raw: bytes) -> str:
    return sha256(raw).hexdigest()


def provenance(raw: bytes | Mapping[str, Any]) -> Provenance | None:
    """Parse a note, or return None if sgl-tune did not write it."""
    try:
        told: Any = json.loads(raw) if isinstance(raw, bytes) else raw
        found = read(Provenance, told, "provenance")
    except (ValueError, TypeError, RecursionError):
        return None
    return found if found.schema_version == SCHEMA else None

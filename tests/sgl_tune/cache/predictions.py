"""What we say of a file, in the words that FlashInfer's own loader and saver are asked in."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from runtime.flashinfer.versions import RECORDS, FlashInfer, flashinfer_of
from sgl_tune.cache.loader import Ignored, Loaded, Outcome, Raised, Save, load_document, next_save
from sgl_tune.cache.record import BrokenCacheFile, parse_cache_file, serialise

PROBE = "__probe__"
PROBE_VALUE = ["ProbeRunner", [1, 2], ["l2_cache_policy", "hot"]]


def reader_of(target: Mapping[str, str]) -> FlashInfer:
    return flashinfer_of(target["flashinfer_version"])


def load(raw: bytes, target: Mapping[str, str], reader: FlashInfer) -> Outcome:
    try:
        file = parse_cache_file(Path(), raw)
    except BrokenCacheFile as error:
        return Raised(error.exception, error.what)
    return load_document(file.document, target, reader)


def our_load(raw: bytes, target: Mapping[str, str]) -> dict[str, Any]:
    outcome = load(raw, target, reader_of(target))
    if isinstance(outcome, Raised):
        return {"verdict": outcome.exception}
    if isinstance(outcome, Loaded):
        return {"verdict": "loaded", "entries": texts(outcome.entries), "policies": texts(outcome.policies)}
    assert isinstance(outcome, Ignored)
    hard = {field: (mismatch.saved, mismatch.current) for field, mismatch in outcome.hard.items()}
    soft = {field: (mismatch.saved, mismatch.current) for field, mismatch in outcome.soft.items()}
    return {"verdict": "ignored", "hard": texts(hard), "soft": texts(soft)}


def texts(table: Mapping[str, Any]) -> dict[str, str]:
    return {key: repr(value) for key, value in table.items()}  # repr: NaN is itself, and True is not 1


def our_save(raw: bytes, target: Mapping[str, str]) -> str | bytes:
    reader = reader_of(target)
    probe = PROBE_VALUE if reader.keeps_policies else PROBE_VALUE[:2]
    outcome = next_save(raw, target, reader)
    if isinstance(outcome, Raised):
        return outcome.exception
    if outcome is Save.SKIPPED:
        return raw
    if outcome is Save.REPLACED:
        return serialise(target, {PROBE: probe}, writer=reader)
    file = parse_cache_file(Path(), raw)
    records = file.records if RECORDS in reader.members and isinstance(file.records, dict) else None
    entries = {**file.entries_for(reader), PROBE: probe}
    kept = file.metadata or target
    if isinstance(kept, dict):
        return serialise(kept, entries, records, writer=reader)
    # Old versions keep whatever is there, and serialise like this one without a checksum.
    return json.dumps({"_metadata": kept, **dict(sorted(entries.items()))}, indent=2).encode()


def short(told: Any) -> str:
    """Enough to tell one answer from another."""
    raw = told if isinstance(told, bytes) else json.dumps(told, sort_keys=True).encode()
    return sha256(raw).hexdigest()[:8]


def recorded(raw: bytes, loaded: dict[str, Any], saved: str | bytes) -> str:
    """One file's line: which file, what loading came to, what saving left."""
    left = saved if isinstance(saved, str) else short(saved)
    return f"{short(raw)} {loaded['verdict']} {short(loaded)} {left}"


def is_shallow(raw: bytes) -> bool:
    """How deep an interpreter goes differs from version to version."""
    return b"[[[[" not in raw and b'{"a":{"a":' not in raw

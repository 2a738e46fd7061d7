"""What FlashInfer's `load_configs` and the next `save_configs` do with a file, without FlashInfer or torch.

Follows flashinfer-python 0.7.2 step by step, its failures included: an exception here is a server that dies
at startup. `tests/stock/test_loader_differential.py` holds it against the real loader.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from sgl_tune.cache.record import METADATA, RECORDS, RESERVED, BrokenCacheFile, parse_cache_file

INDETERMINATE = (None, "unknown", "None")
_SAFE_DEPTH = 100


class Mismatch(NamedTuple):
    """One environment field: what the file says, what the target has."""

    saved: Any
    current: str


class Loaded(NamedTuple):
    """The table the server looks entries up in: key -> (runner, tactic), key -> policy."""

    entries: dict[str, tuple[str, Any]]
    policies: dict[str, tuple[Any, ...]]
    skipped: tuple[str, ...]


class Ignored(NamedTuple):
    """Another environment's file. A hard mismatch also forbids every later save to this path."""

    hard: dict[str, Mismatch]
    soft: dict[str, Mismatch]


class Raised(NamedTuple):
    """The loader dies with this exception; `key` is the entry that kills it, if it is one."""

    exception: str
    reason: str
    key: str | None = None


Outcome = Loaded | Ignored | Raised


class Save(Enum):
    """What a save of a server that has something to save makes of the file on disk."""

    MERGED = "merged"
    REPLACED = "replaced"
    SKIPPED = "skipped"


class _EntryError(Exception):
    def __init__(self, cause: Exception, key: str) -> None:
        super().__init__(str(cause))
        self.raised = Raised(type(cause).__name__, str(cause), key)


def load(raw: bytes, target: Mapping[str, str]) -> Outcome:
    try:
        document = parse_cache_file(Path(), raw).document
    except BrokenCacheFile as error:
        return Raised(error.exception, error.what)
    return load_document(document, target)


def load_document(document: Mapping[str, Any], target: Mapping[str, str]) -> Outcome:
    try:
        return _load(document, target)
    except _EntryError as error:
        return error.raised
    except (RecursionError, ValueError) as error:
        return Raised(type(error).__name__, str(error))


def _load(document: Mapping[str, Any], target: Mapping[str, str]) -> Loaded | Ignored:
    saved = document.get(METADATA)
    if saved is not None:
        hard, soft = metadata_mismatches(saved, target)
        if hard or soft:
            for mismatch in hard.values():
                str(mismatch.saved)  # the loader prints them, and a deep enough value kills that
            return Ignored(hard, soft)
    records = document.get(RECORDS, {})
    if not isinstance(records, dict):
        raise ValueError(f"{RECORDS} must be a JSON object, not {type(records).__name__}")
    if records:
        copy.deepcopy(records)
    return _load_entries(document)


def _load_entries(document: Mapping[str, Any]) -> Loaded:
    entries: dict[str, tuple[str, Any]] = {}
    policies: dict[str, tuple[Any, ...]] = {}
    skipped = []
    for key, value in document.items():
        if key in RESERVED:
            continue
        try:
            runner, tactic = value[0], value[1]
            if type(tactic) is list:
                tactic = restore_tactic(tactic)
            if runner.startswith("Cudnn") and isinstance(tactic, int) and tactic >= 0:
                skipped.append(key)
                continue
            if len(value) > 2:
                policies[key] = tuple(value[2])
        except (TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            raise _EntryError(error, key) from None
        entries[key] = (runner, tactic)
    return Loaded(entries, policies, tuple(skipped))


def restore_tactic(value: Any) -> Any:
    # Recursive on purpose, two frames a level: the loader gives up at the same nesting.
    if isinstance(value, list):
        return tuple(restore_tactic(item) for item in value)
    return value


def metadata_mismatches(
    saved: Any, target: Mapping[str, str]
) -> tuple[dict[str, Mismatch], dict[str, Mismatch]]:
    """(hard, soft): a definite other value, and one the writer could not tell."""
    known = saved if isinstance(saved, dict) else {}
    hard: dict[str, Mismatch] = {}
    soft: dict[str, Mismatch] = {}
    for field, current in target.items():
        value = known.get(field)
        if value in (current, "*"):
            continue
        (soft if value in INDETERMINATE else hard)[field] = Mismatch(value, current)
    return hard, soft


def next_save(raw: bytes, target: Mapping[str, str]) -> Save | Raised:
    try:
        document = parse_cache_file(Path(), raw).document
    except BrokenCacheFile as error:
        # Text that is not JSON, or JSON that is not an object, is written over; anything else kills the save.
        if error.exception in ("JSONDecodeError", "TypeError", "AttributeError"):
            return Save.REPLACED
        return Raised(error.exception, error.what)
    try:
        return _save(document, target)
    except RecursionError as error:
        return Raised("RecursionError", str(error))


def _save(document: Mapping[str, Any], target: Mapping[str, str]) -> Save:
    saved = document.get(METADATA)
    hard, soft = metadata_mismatches(saved, target) if saved is not None else ({}, {})
    if hard:
        for mismatch in hard.values():
            str(mismatch.saved)
        return Save.SKIPPED
    if soft:
        return Save.REPLACED
    if _deeper_than(document, _SAFE_DEPTH):
        json.dumps(document, indent=2)
    return Save.MERGED


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        nested = [item.values() if isinstance(item, dict) else item for item in level]
        level = [child for children in nested for child in children if isinstance(child, (dict, list))]
        if not level:
            return False
    return True

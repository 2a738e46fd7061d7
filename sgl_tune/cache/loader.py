"""Predict what FlashInfer's `load_configs` and the next `save_configs` do with a file, without FlashInfer
or torch. This code follows the version's reader step by step, including its failures: an exception here is
a server that dies at startup. `tests/stock` compares it with the real loaders."""

import copy
import json
from collections.abc import Mapping
from enum import Enum
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from runtime.flashinfer.versions import METADATA, RECORDS, FlashInfer
from sgl_tune.cache.record import BrokenCacheFile, parse_cache_file
from sgl_tune.reading import is_deeper

INDETERMINATE = (None, "unknown", "None")
_SAFE_DEPTH = 100


class Mismatch(NamedTuple):
    """A field of the environment that differs between the file and the target."""

    saved: Any
    current: str


class Loaded(NamedTuple):
    """The table in which the server looks up entries: key -> (runner, tactic), key -> policy."""

    entries: dict[str, tuple[str, Any]]
    policies: dict[str, tuple[Any, ...]]
    skipped: tuple[str, ...]


class Ignored(NamedTuple):
    """The loader ignores this file of another environment. A hard mismatch also forbids later saves."""

    hard: dict[str, Mismatch]
    soft: dict[str, Mismatch]


class Raised(NamedTuple):
    """The loader dies with this exception. `key`: the entry that kills it, if it is one."""

    exception: str
    reason: str
    key: str | None = None


Outcome = Loaded | Ignored | Raised


class Save(Enum):
    """What a save does to the file, if the server has something to save."""

    MERGED = "merged"
    REPLACED = "replaced"
    SKIPPED = "skipped"


def load_document(document: Mapping[str, Any], target: Mapping[str, str], reader: FlashInfer) -> Outcome:
    try:
        return _load(document, target, reader)
    except (RecursionError, ValueError) as error:
        return Raised(type(error).__name__, str(error))


def _load(document: Mapping[str, Any], target: Mapping[str, str], reader: FlashInfer) -> Outcome:
    saved = document.get(METADATA)
    if saved is not None:
        if not (reader.tells_unknown or isinstance(saved, dict)):
            why = f"{METADATA} must be a JSON object, not {type(saved).__name__}"
            return Raised("AttributeError", why)
        hard, soft = metadata_mismatches(saved, target, reader)
        if hard or soft:
            for mismatch in hard.values():
                str(mismatch.saved)  # the loader prints the value, which fails if it is nested too deep
            return Ignored(hard, soft)
    records = document.get(RECORDS, {}) if RECORDS in reader.members else {}
    if not isinstance(records, dict):
        return Raised("ValueError", f"{RECORDS} must be a JSON object, not {type(records).__name__}")
    if records:
        copy.deepcopy(records)
    return _load_entries(document, reader)


def _load_entries(document: Mapping[str, Any], reader: FlashInfer) -> Loaded | Raised:
    entries: dict[str, tuple[str, Any]] = {}
    policies: dict[str, tuple[Any, ...]] = {}
    skipped = []
    for key, value in document.items():
        if key in reader.members:
            continue
        try:
            runner, tactic = value[0], value[1]
            if type(tactic) is list:
                tactic = restore_tactic(tactic)
            if reader.skips_cudnn_indices and _is_cudnn_index(runner, tactic):
                skipped.append(key)
                continue
            if reader.keeps_policies and len(value) > 2:
                policies[key] = tuple(value[2])
        except (TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            return Raised(type(error).__name__, str(error), key)
        entries[key] = (runner, tactic)
    return Loaded(entries, policies, tuple(skipped))


def is_written(value: Any) -> bool:
    """Whether any FlashInfer writes such a value: a runner and a tactic; since 0.7.1 also the policy of
    their measurement, and since 0.7.4 how they were chosen."""
    if not isinstance(value, list):
        return False
    return len(value) in (2, 3) or (len(value) == 4 and isinstance(value[3], dict))


def could_be_tactic(tactic: Any) -> bool:
    """Whether an unknown op could have this tactic. As in a lookup, lists have become tuples."""
    if isinstance(tactic, tuple):
        return all(item is None or could_be_tactic(item) for item in tactic)
    return isinstance(tactic, (int, str)) or (isinstance(tactic, float) and isfinite(tactic))


def _is_cudnn_index(runner: Any, tactic: Any) -> bool:
    return runner.startswith("Cudnn") and isinstance(tactic, int) and tactic >= 0


def restore_tactic(value: Any) -> Any:
    # Recursive on purpose, two frames a level: the loader gives up at the same nesting.
    if isinstance(value, list):
        return tuple(restore_tactic(item) for item in value)
    return value


def metadata_mismatches(
    saved: Any, target: Mapping[str, str], reader: FlashInfer
) -> tuple[dict[str, Mismatch], dict[str, Mismatch]]:
    """Return the (hard, soft) mismatches: another known value, or a value that the writer did not know, if
    the reader distinguishes them."""
    known = saved if isinstance(saved, dict) else {}
    hard: dict[str, Mismatch] = {}
    soft: dict[str, Mismatch] = {}
    for field, current in target.items():
        value = known.get(field)
        if value in (current, "*"):
            continue
        is_unknown = reader.tells_unknown and value in INDETERMINATE
        (soft if is_unknown else hard)[field] = Mismatch(value, current)
    return hard, soft


def next_save(raw: bytes, target: Mapping[str, str], reader: FlashInfer) -> Save | Raised:
    try:
        document = parse_cache_file(Path(), raw).document
    except BrokenCacheFile as error:
        # A save overwrites a file that is no JSON, since 0.6.15 also one that is no object; others kill it.
        is_object_missing = error.exception in ("TypeError", "AttributeError")
        if error.exception == "JSONDecodeError" or (reader.tells_unknown and is_object_missing):
            return Save.REPLACED
        return Raised(error.exception, error.what)
    try:
        return _save(document, target, reader)
    except RecursionError as error:
        return Raised("RecursionError", str(error))


def _save(document: Mapping[str, Any], target: Mapping[str, str], reader: FlashInfer) -> Save:
    saved = document.get(METADATA) if reader.tells_unknown else None
    hard, soft = metadata_mismatches(saved, target, reader) if saved is not None else ({}, {})
    if hard:
        for mismatch in hard.values():
            str(mismatch.saved)
        return Save.SKIPPED
    if soft:
        return Save.REPLACED
    if is_deeper(document, _SAFE_DEPTH):
        json.dumps(document, indent=2)
    return Save.MERGED

"""FlashInfer's managed store: its manifest.json and one entry a file."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from random import Random

from tests.fuzz.mutate import duplicated_key, mutated, of_bytes, of_json
from tests.fuzz.parser import Parser, command
from tests.sgl_tune.cache.corpus import HOT, TARGET, moe_key

_KEY = moe_key(16)
_ENTRY = {"key": _KEY, "runner": "MoERunner", "tactic": [3, [1, 2]], "profiling_policy": HOT}
_MANIFEST = json.dumps({**TARGET, "cache_schema": "v2"}).encode()
_RECORD = {"key": "('__protocol__', 'ns', 'bf16\\n')", "runner": "ns", "tactic": {"graph": [1, 2.5, None]}}
_ENTRIES = (json.dumps(_ENTRY).encode(), json.dumps(_RECORD).encode())
_COMMANDS = (
    ("inspect", "--entries"),
    ("inspect", "--format", "json"),
    ("verify",),
    ("verify", "--format", "json"),
)


def _make(random: Random) -> tuple[bytes, bytes, int]:
    ways = (of_json, of_json, of_json, duplicated_key, of_bytes)
    entry, manifest = random.choice(_ENTRIES), _MANIFEST
    if random.random() < 0.6:
        entry = mutated(_ENTRIES, random, *ways)
    else:
        manifest = mutated((_MANIFEST,), random, *ways)
    return entry, manifest, random.randrange(len(_COMMANDS))


def _read(made: tuple[bytes, bytes, int], folder: Path) -> None:
    entry, manifest, which = made
    store = folder / "store/autotune/v2/0123456789abcdef"
    (store / "entries").mkdir(parents=True)
    (store / "manifest.json").write_bytes(manifest)
    (store / "entries" / f"{sha256(_key_of(entry)).hexdigest()[:24]}.json").write_bytes(entry)
    command(*_COMMANDS[which], "store")


def _key_of(entry: bytes) -> bytes:
    """For the file's name: a damaged key is judged by what it says."""
    try:
        return str(json.loads(entry)["key"]).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        return _KEY.encode()


PARSER = Parser(_make, _read)

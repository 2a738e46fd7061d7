"""What is read member by member means what it means as a whole: held against a parser of the whole."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from runtime.server.flashinfer import FLASHINFERS, NEWEST
from sgl_tune.cache import regular
from sgl_tune.cache.loader import load_document, load_file
from sgl_tune.cache.record import BrokenCacheFile, CacheFile, parse_cache_file, serialise
from tests.fuzz.mutate import duplicated_key, mutated, of_bytes, of_json
from tests.sgl_tune.cache.corpus import HOT, TARGET, build_corpus, moe_entries, moe_key

_GOOD = serialise(TARGET, moe_entries())
_SEEDS = [*(case.raw for case in build_corpus(TARGET, moe_entries((1, 8192))).values()), _GOOD]


def _as_a_whole(raw: bytes) -> Any:
    """The document, or what CPython's parser raises."""
    try:
        found = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return type(error).__name__
    return found if isinstance(found, dict) else type(found)


def _by_members(raw: bytes) -> CacheFile | None:
    try:
        file = parse_cache_file(Path(), raw)
    except BrokenCacheFile:
        return None
    return file if file.members is not None else None


def _hold_against_the_whole(raw: bytes) -> bool:
    """Whether it was read by its members."""
    file = _by_members(raw)
    if file is None:
        return False
    document = _as_a_whole(raw)
    assert isinstance(document, dict)
    assert repr(file.document) == repr(document)  # NaN too, and the order
    whole = CacheFile(Path(), raw, document)
    assert file.computed_generation == whole.computed_generation
    for reader in (NEWEST, FLASHINFERS[0]):
        loaded, exact = load_file(file, TARGET, reader), load_document(document, TARGET, reader)
        assert repr(loaded) == repr(exact)
    return True


def test_what_flashinfer_writes_is_read_by_its_members() -> None:
    assert _hold_against_the_whole(_GOOD)
    assert _hold_against_the_whole(serialise(TARGET, {moe_key(1): ["R", [1, [2, 3]], HOT], "k": None}))


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_mean_the_same(seed: int) -> None:
    random = Random(seed)
    by_members = 0
    for _ in range(400):
        raw = mutated(_SEEDS, random, of_json, duplicated_key, of_bytes)
        if len(raw) < 100_000:
            laid_out = json.dumps(found, indent=2).encode() if isinstance(found := _loose(raw), dict) else raw
            by_members += _hold_against_the_whole(raw) + _hold_against_the_whole(laid_out)
    assert by_members > 100


def _loose(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


@pytest.mark.parametrize(
    "raw",
    [
        b'{\n  "a": 1,\n  "a": 2\n}',
        b'{\n  "a": 1},\n  "b": 2\n}',
        b'{\n  "a": 1, "b": 2\n}',
        b'{\n  "a\n}": 1\n}',
        b'{\n  "a": "x,\n  "b": 2\n}',
        b'{\n  "a": [1,\n  "b": 2]\n}',
        b'\xef\xbb\xbf{\n  "a": 1\n}',
        b'{\n  "a": ' + b"[" * 30 + b"]" * 30 + b"\n}",
        b'{\n  "a": 1\n}\n',
        b'{\n  "a\\u0041": 1\n}',
        b'{\n  "\xc3\xa9": 1\n}',
        b'{\n  "a"b": 1\n}',
        b'{\n  "a"\n}',
        b'{\n  "a": \n}',
        b"{}",
    ],
)
def test_what_is_laid_out_otherwise_is_parsed_as_a_whole(raw: bytes) -> None:
    assert regular.members_of(raw.decode()) is None


def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular, "_MOST", 50)
    monkeypatch.setattr(regular, "_names", set())
    monkeypatch.setattr(regular, "_values", {})
    for number in range(20):
        entries = {moe_key(bucket): ["MoERunner", 100 * number + bucket, HOT] for bucket in range(20)}
        assert _hold_against_the_whole(serialise(TARGET, entries))
        assert len(regular._names) <= 50 and len(regular._values) <= 50

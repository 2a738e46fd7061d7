"""What is read by its shape means what it means as a whole: held against a parser of the whole."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from runtime.server.flashinfer import FLASHINFERS, GENERATION, NEWEST, FlashInfer
from sgl_tune.cache import regular
from sgl_tune.cache.record import BrokenCacheFile, CacheFile, parse_by_shape, serialise
from sgl_tune.verify.environment import Target
from sgl_tune.verify.judge import Judge
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


def _by_shape(raw: bytes) -> CacheFile | None:
    try:
        file = parse_by_shape(Path(), raw)
    except BrokenCacheFile:
        return None
    return file if file.regular is not None else None


def _hold_against_the_whole(raw: bytes) -> bool:
    """Whether it was read by its members."""
    file = _by_shape(raw)
    if file is None:
        return False
    document = _as_a_whole(raw)
    assert isinstance(document, dict)
    assert repr(file.document) == repr(document)  # NaN too, and the order
    whole = CacheFile(Path(), raw, document)
    assert file.computed_generation == whole.computed_generation
    assert repr((file.metadata, file.generation)) == repr((whole.metadata, whole.generation))
    return True


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular, "_MOST_SHAPES", 1 << 20)
    monkeypatch.setattr(regular, "_shapes", {})
    monkeypatch.setattr(regular, "_choices", {})


def test_what_flashinfer_writes_is_read_by_its_shape() -> None:
    assert _hold_against_the_whole(_GOOD)
    for tactic in (0, -1, 129, [64, 3], [64, -1]):
        entries = {moe_key(1): ["R", tactic, HOT], moe_key(2): ["R", [1, [2]], HOT], "k": None}
        assert _hold_against_the_whole(serialise(TARGET, {**entries, moe_key(4): ["R", tactic]}))
    assert sum(map(len, regular._shapes.values())) == 2


def test_a_file_cut_anywhere_is_not_the_whole_one() -> None:
    """Not even in front of the checksum, where what is left of it is the shape of the whole."""
    small = serialise(TARGET, dict(islice(moe_entries().items(), 3)))
    assert _hold_against_the_whole(small)
    assert not any(_hold_against_the_whole(small[:length]) for length in range(len(small)))
    before = small[: small.rindex(b'"' + GENERATION.encode())]
    read = [_hold_against_the_whole(before + end) for end in (b"}", b'""', b"\n}", b'"x": 1\n}')]
    assert read == [False, False, False, True]


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_mean_the_same(seed: int) -> None:
    random = Random(seed)
    by_shape = 0
    for _ in range(400):
        raw = mutated(_SEEDS, random, of_json, duplicated_key, of_bytes)
        if len(raw) < 100_000:
            laid_out = json.dumps(found, indent=2).encode() if isinstance(found := _loose(raw), dict) else raw
            by_shape += _hold_against_the_whole(raw) + _hold_against_the_whole(laid_out)
    assert by_shape > 100


def _loose(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


_VALUE = b'[\n    "R",\n    7\n  ]'
_SUM = b'"_generation": "' + b"0" * 64 + b'"\n}'


@pytest.mark.parametrize(
    "raw",
    [
        b'{\n  "a": VALUE,\n  "a": VALUE\n}',
        b'{\n  "a": VALUE},\n  "b": 2\n}',
        b'{\n  "a": [VALUE]\n}',
        b'{\n  "a": {"b": VALUE}\n}',
        b'{\n  "_metadata": VALUE\n}',
        b'{\n  "_records": {"a": VALUE},\n  "b": VALUE\n}',
        b'{\n  "a": VALUE,\n  "b": "VALUE"\n}',
        b'{\n  "a": VALUE,\n  "b": ["\\u0028choice 0)"]\n}',
        b'{\n  "a": VALUE,\n  "(choice 0)": 1\n}',
        b'{\n  "a": VALUE,\n  "b": ["(choice 1)"]\n}',
        b'{\n  "a": VALUE,\n  "b": ' + b"[" * 30 + b"]" * 30 + b"\n}",
        b'{\n  "a": VALUE,\n  "\xff": 1\n}',
        b'\xef\xbb\xbf{\n  "a": VALUE\n}',
        b'[\n  "a", VALUE\n]',
        b'{\n  "a": VALUE,\n  "b\\' + _SUM,
        b'{\n  "_generation": "",\n  "a": VALUE,\n  "b\\' + _SUM,
        b'{\n  "_generation": "",\n  "a": VALUE,\n  ' + _SUM,
        b'{\n  "a": [\n    "R",\n    07\n  ]\n}',
        b'{\n  "a": [\n    "R",\n    7.0\n  ]\n}',
        b'{\n  "a": [\n    "R S",\n    7\n  ]\n}',
        b'{\n  "a": ["R", 7]\n}',
        b"{}",
        b"",
    ],
)
def test_what_is_laid_out_otherwise_is_parsed_as_a_whole(raw: bytes) -> None:
    assert regular.regular(raw.replace(b"VALUE", _VALUE)) is None


def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular, "_MOST_SHAPES", 5)
    monkeypatch.setattr(regular, "_MOST_CHOICES", 50)
    for number in range(20):
        entries = {moe_key(bucket): ["MoERunner", 100 * number + bucket, HOT] for bucket in range(number + 1)}
        assert _hold_against_the_whole(serialise(TARGET, entries)) == (number < 5)
        assert sum(map(len, regular._shapes.values())) <= 5 and len(regular._choices) <= 50


_CUDNN = "CudnnFp8GemmRunner"
_RUNNERS = ("MoERunner", _CUDNN, "Other", 5)
_NUMBERS = (0, 1, 64, -1, -2, 1 << 30, 1 << 31, 1 << 70, 1.0, True)
_TACTICS = (*_NUMBERS, None, "7", [8, 3], [8, 4], [8], [8, -3], [])
_POLICIES = (HOT, [*HOT[:1], 1, "l2_cache_policy", "cold"], [*HOT[:1], 2, "l2_cache_policy", "cold"], 3)


def _like_another(random: Random, writer: FlashInfer) -> bytes:
    """Few keys and few values, so that many are alike and some of these by a hair not."""
    entries = {moe_key(1): ["MoERunner", random.choice(_TACTICS[:3]), HOT]}
    for bucket in random.sample((1, 2, 4), random.choice((0, 1, 1, 1, 2))):
        runner = random.choice(("MoERunner", _CUDNN))
        named = runner if random.random() < 0.8 else random.choice(_RUNNERS)
        policy = HOT if random.random() < 0.7 else random.choice(_POLICIES)
        value = [named, random.choice(_TACTICS), policy]
        entries[moe_key(bucket).replace("MoERunner", runner)] = value[: random.choice((3, 3, 3, 2))]
    if random.random() < 0.3:
        key = moe_key(8).replace("trtllm::fused_moe::gemm1", "flashinfer::trtllm_bf16_moe")
        entries[key] = ["MoERunner", random.choice(_TACTICS), HOT]
    environment = TARGET if random.random() < 0.8 else {**TARGET, "gpu": random.choice(("A", "B"))}
    raw = serialise(environment, entries, writer=writer)
    return raw if random.random() < 0.9 else raw.replace(b"_pol", b"_pal", 1)


@pytest.mark.parametrize("target", [Target(TARGET, "test"), Target(None, "nobody", flashinfer="0.7.1")])
@pytest.mark.parametrize("writer", [NEWEST, FLASHINFERS[0]])
def test_a_file_is_judged_as_if_no_other_had_been_before(target: Target, writer: FlashInfer) -> None:
    random, seasoned, alike = Random(5), Judge(target), 0
    for _ in range(3000):
        raw = _like_another(random, writer)
        before = len(seasoned._alike)
        found, alone = seasoned.judge(Path(), raw), Judge(target).judge(Path(), raw)
        assert (found.verdict, found.findings) == (alone.verdict, alone.findings)
        assert repr(found.file and found.file.document) == repr(alone.file and alone.file.document)
        alike += len(seasoned._alike) == before and GENERATION in writer.members
    assert alike > 500 or GENERATION not in writer.members

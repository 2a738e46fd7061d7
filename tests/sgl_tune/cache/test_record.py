"""Keys, entries and files: parsed safely, written back byte for byte."""

import json
import time
from pathlib import Path

import pytest

from sgl_tune.cache.record import Entry, KeyParts, parse_cache_file, parse_key, read_cache_file, serialise

MOE_KEY = (
    "('trtllm::fused_moe::gemm1', 'MoERunner', ((2048, 2048), (128, 1536, 2048), (0,)), "
    "(torch.bfloat16, 8, False))"
)


def test_a_moe_key_has_its_parts_and_bucket() -> None:
    parts = parse_key(MOE_KEY)
    assert parts == KeyParts(
        op="trtllm::fused_moe::gemm1",
        runner="MoERunner",
        shapes="((2048, 2048), (128, 1536, 2048), (0,))",
        extras=("torch.bfloat16", "8", "False"),
    )
    assert parts.profile == ((2048, 2048), (128, 1536, 2048), (0,))
    assert parts.bucket == 2048


@pytest.mark.parametrize(
    "text",
    [
        "",
        "junk",
        "('op', 'R')",
        "('op', 'R', ((1,2),), ())",
        "('op',  'R', ((1, 2),), ())",
        "('op', 'R', ((1, 2),), (1))",
        "('op', 'R', ((1, 2),), (1,  2))",
        "('op', 'R', ((1, 2),), ()) ",
        "('op', 'R', ((1, 2),), (()",
        "('op', 'R', ((1.5,),), ())",
        "('op', 'R', ((01,),), ())",
        "('op', 'R', ((-0,),), ())",
        "('op', 'R', ((1, 2)(3,)), ())",
        "('op', 'R', ((1, 2,),), ())",
        "('op', 'R', ((1)), ())",
        "('op', 'R', (), ())",
        "('op', 'R', ((1, 2)), ())",
        "('op', 'R', ((1, 2), (3, 4),), ())",
        "('op', 'R', ((9" + "9" * 5000 + ",),), ())",
        "__import__('os').abort()",
    ],
)
def test_a_text_no_key_prints_as_is_refused(text: str) -> None:
    assert parse_key(text) is None


@pytest.mark.parametrize("filler", ["(", "'", "(1, 2), ", ", ", "'a", "((", "\\'", "(1,),"])
def test_hostile_keys_are_refused_in_no_time(filler: str) -> None:
    started = time.perf_counter()
    for head in ("('op', 'R', (", "('op', 'R', ((1,),), (", "('"):
        parse_key(head + filler * (16_000 // len(filler)))
        parse_key(head + filler * (16_000 // len(filler)) + "))")
    assert time.perf_counter() - started < 1


def test_the_real_tuple_prints_as_the_key_that_parses_back() -> None:
    fields = ("op::x", "MoERunner", ((), (0,), (5, -1)), (True, None, "Module", (1, (2,)), 1.5))
    parts = parse_key(str(fields))
    assert parts is not None
    assert (parts.op, parts.runner, parts.profile) == fields[:3]
    assert parts.extras == tuple(map(repr, fields[3]))


@pytest.mark.parametrize("value", [None, 3, "Foo", {}, [], [1], ["R", 1, 2]])
def test_a_malformed_entry_reads_as_empty_rather_than_failing(value: object) -> None:
    entry = Entry("k", value)
    assert entry.policy is None
    assert entry.runner in (None, "R")


def test_members_keep_their_order_and_reserved_ones_are_not_entries() -> None:
    document = {"b": 1, "_metadata": {"gpu": "x"}, "a": 2, "_records": {}, "_generation": "g"}
    file = parse_cache_file(Path("rank.json"), json.dumps(document).encode())
    assert list(file.entries.items()) == [("b", 1), ("a", 2)]
    assert [entry.key for entry in file] == ["b", "a"]
    assert (file.metadata, file.records, file.generation) == ({"gpu": "x"}, {}, "g")


def test_a_written_file_reads_back_with_its_checksum_and_digest(tmp_path: Path) -> None:
    raw = serialise({"gpu": "H200", "by": "sgl-tune"}, {"k2": ["R", 1], "k1": ["R", [1, 2]]})
    path = tmp_path / "rank.json"
    path.write_bytes(raw)
    file = read_cache_file(path)
    assert list(file.entries) == ["k1", "k2"]
    assert file.metadata == {"gpu": "H200", "by": "sgl-tune"}
    assert file.generation == file.computed_generation
    assert len(file.digest) == 64


def test_an_edited_file_no_longer_matches_its_checksum() -> None:
    raw = serialise({"gpu": "H200"}, {"k": ["R", 1]})
    file = parse_cache_file(Path("x"), raw.replace(b'"R",\n    1', b'"R",\n    2'))
    assert file.generation != file.computed_generation

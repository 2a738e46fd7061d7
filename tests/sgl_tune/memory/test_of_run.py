"""Run files: anybody's, and of starts that died."""

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.errors import UsageError
from sgl_tune.memory.core.predict import read_report

ABOUT: dict[str, Any] = {"event": "run", "schema_version": 1, "device": "meta", "total_bytes": 80 << 30}


def _make_file(tmp_path: Path, *records: object) -> Path:
    file = tmp_path / "run.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def test_facts_become_sizes_as_they_are_told(tmp_path: Path) -> None:
    facts = {"event": "facts", "kv_tokens": 1000, "mem_fraction_static": 0.9, "decode_graphs": [1, 2]}
    context = {"name": "context", "bytes": 1 << 30, "source": "s", "times": 1}
    constants = {"event": "facts", "constants": [context]}
    report = read_report(_make_file(tmp_path, {**ABOUT, "rank_name": "DP1 TP1", "rank": 1}, facts, constants))
    assert report.whose.source == "core" and report.whose.rank_name == "DP1 TP1"
    assert report.sizes.kv_tokens == 1000 and report.sizes.decode_graphs == (1, 2)
    assert report.margin_bytes > (1 << 30) // 10


def test_messages_in_graphs_are_no_share_of_the_communicators(tmp_path: Path) -> None:
    sizes = {"context": 1, "nccl": 2, "nccl:8": 4, "nccl graph": 8, "nccl message": 16}
    constants = [{"name": name, "bytes": size, "source": "s"} for name, size in sizes.items()]
    report = read_report(_make_file(tmp_path, ABOUT, {"event": "facts", "constants": constants}))
    assert [(share.what, share.bytes) for share in report.owned.outside] == [("NCCL", 6)]


def test_a_measured_run_has_no_margin(tmp_path: Path) -> None:
    report = read_report(_make_file(tmp_path, {**ABOUT, "device": "cuda"}))
    assert report.whose.source == "measured" and report.margin_bytes == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"total_bytes": "many"},
        {"total_bytes": True},
        {"rank": [1]},
        {"gpu": 7},
        {"constants": {}},
        {"constants": [{"bytes": "x"}]},
        {"decode_graphs": [1, "2"]},
        {"kv_tokens": 1.5},
        {"schema_version": 99},
        {"total_bytes": 10**30},
        {"mem_fraction_static": float("nan")},
        {"decode_graphs": [1, "x"]},
        {"prefill_graphs": [[]]},
        {"event": "else"},
    ],
)
def test_members_of_another_kind_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"run\.jsonl"):
        read_report(_make_file(tmp_path, {**ABOUT, **changes}))


@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 50, b"[]\n", b"{}\n"])
def test_files_that_are_no_run_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "run.jsonl"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"run\.jsonl"):
        read_report(file)

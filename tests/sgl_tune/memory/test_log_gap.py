"""A log beside its prediction: causes add up, and constants from a log bring the next prediction closer."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.errors import UsageError
from sgl_tune.memory.calibration import read_constants
from sgl_tune.server_log.reader import read_server_log
from tests.sgl_tune.running import run_here
from tests.sgl_tune.server_log.test_reader import RELEASE_0_5_17

LINE = ("mem-report", "--model", "Qwen3-30B-A3B", "--tp", 2, "--gpu", "h200", "--cuda-graph-max-bs", 2)
SHORT = ("--chunked-prefill-size", 64, "--mem-fraction-static", 0.85)
LOG = """\
[2026-08-02 10:00:00 TP{rank}] Init torch distributed ends. elapsed=0.52 s, mem usage=2.90 GB
[2026-08-02 10:00:02 TP{rank}] Load weight begin. avail mem={free} GB
[2026-08-02 10:00:12 TP{rank}] Load weight end. elapsed=10.10 s, avail mem=107.80 GB, mem usage=28.47 GB.
[2026-08-02 10:00:12 TP{rank}] Memory pool end. avail mem={left} GB
"""


def _report(log: Path, *more: object) -> Any:
    ran = run_here(*LINE, *SHORT, "--from-log", log, "--format", "json", *more)
    assert ran.out, ran.err
    return json.loads(ran.out)


def _difference(report: Any, what: str) -> int:
    (row,) = (row for row in report["comparisons"][0]["rows"] if row["what"] == what)
    return abs(row["predicted"] - row["other"])


def _interleaved(folder: Path) -> Path:
    """Of both ranks, a line of each in turn; the second has less."""
    told = ((0, 136.9, "20.10"), (1, 136.27, "20.00"))
    ranks = [LOG.format(rank=rank, free=free, left=left).splitlines() for rank, free, left in told]
    (folder / "log").write_text("\n".join(line for pair in zip(*ranks, strict=True) for line in pair))
    return folder / "log"


def test_constants_of_a_log_bring_the_next_prediction_closer(tmp_path: Path) -> None:
    log, constants = _interleaved(tmp_path), tmp_path / "mine.json"
    before = _report(log, "--write-constants", constants)
    (told,) = (note for note in before["notes"] if "than predicted" in note)
    assert "beyond the error bar" in told and "outside torch after the communicator +" in told
    assert any("TP1 had the least free before the weights, 136.27 GiB" in note for note in before["notes"])
    ranks = before["logged"]["ranks"]
    assert [rank["rank"] for rank in ranks] == ["TP0", "TP1"]
    gaps = [rank["gap"]["outside torch after the communicator"] for rank in ranks]
    assert gaps[1] - gaps[0] == ranks[0]["baseline_bytes"] - ranks[1]["baseline_bytes"] > 600 << 20
    assert read_constants(constants, "sm90").nccl[2].bytes > 2 << 30
    after = _report(log, "--constants", constants)
    what = "free before weights"
    assert _difference(after, what) < (8 << 20) < _difference(before, what) // 50
    (told,) = (note for note in after["notes"] if "than predicted" in note)
    assert "outside torch after the communicator +" not in told


def test_a_log_may_be_packed_or_come_from_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, packed = tmp_path / "log", tmp_path / "log.gz"
    plain.write_text(RELEASE_0_5_17)
    packed.write_bytes(gzip.compress(RELEASE_0_5_17.encode()))
    assert read_server_log(packed) == read_server_log(plain)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(packed.read_bytes()))))
    assert read_server_log(Path("-")) == read_server_log(plain)
    packed.write_bytes(packed.read_bytes()[:200])
    with pytest.raises(UsageError, match="no whole gzip file"):
        read_server_log(packed)


@pytest.mark.parametrize(
    ("more", "words"),
    [(("--gpu", "l40s"), "cannot have had 136.27 GiB free"), ((), "add --from-log")],
)
def test_constants_that_cannot_be_are_not_written(tmp_path: Path, more: tuple[str, ...], words: str) -> None:
    log = ("--from-log", _interleaved(tmp_path)) if more else ()
    ran = run_here(*LINE, *SHORT, *more, *log, "--write-constants", tmp_path / "c.json")
    assert ran.code == 2 and words in ran.err and not (tmp_path / "c.json").exists()

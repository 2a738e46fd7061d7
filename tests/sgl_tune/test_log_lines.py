"""One start, as every collector of logs hands it on: the same lines, whose they are, and when."""

import gzip
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgl_tune.log_lines import LogLine, line_parser, log_pieces

ENTRY = "[2026-11-20 10:00:07.250 DP1 TP3] Load weight begin. avail mem=139.21 GB"
FRAME = '  File "model_runner.py", line 12, in load_model'
TEXT = "Load weight begin. avail mem=139.21 GB"
AT = datetime(2026, 11, 20, 10, 0, 7, 250_000)
STAMP = "2026-11-20T12:00:07.123456789"
STAMPED = datetime(2026, 11, 20, 12, 0, 7, 123_456)


def _lines(*raw: str) -> list[LogLine]:
    parse = line_parser()
    return [parse(line + "\n") for line in raw]


def _both(before: str) -> tuple[LogLine, LogLine]:
    """An entry and a line of its traceback, each with that before it."""
    entry, frame = _lines(before + ENTRY, before + FRAME)
    return entry, frame


@pytest.mark.parametrize(
    ("before", "source"),
    [
        ("", ""),
        ("2026-08-02 - __main__ - INFO - ", ""),
        ("[pod/chat-0/sglang] ", "chat-0/sglang"),
        ("chat-1  | ", "chat-1"),
        ("\x1b[36mchat-1  | \x1b[0m", "chat-1"),
        ("chat.1.x7k@node-3    | ", "chat.1.x7k@node-3"),
        ("chat-7d9f-x2 sglang ", "chat-7d9f-x2 sglang"),
        ("12: ", "12"),
        ("[1,3]<stderr>:", "1,3"),
        ("[rank3]: ", "rank3"),
        ("\x1b[36m(Engine pid=9, ip=10.0.0.7)\x1b[0m ", "Engine pid=9, ip=10.0.0.7"),
    ],
)
def test_the_prefix_of_a_collector_is_removed_from_a_line(before: str, source: str) -> None:
    entry, frame = _both(before)
    assert entry == LogLine(TEXT, source, "DP1 TP3", AT, is_entry=True)
    assert frame.text.endswith(FRAME) and (frame.source, frame.rank) == (source, "DP1 TP3")
    assert frame.text == FRAME or source == "", "a traceback's own indent stays, a wrapper's words may too"


@pytest.mark.parametrize(
    ("before", "source", "zone"),
    [
        (f"{STAMP}Z ", "", timezone.utc),
        (f"[pod/chat-0/sglang] {STAMP}Z ", "chat-0/sglang", timezone.utc),
        (f"chat-1  | {STAMP}+02:00 ", "chat-1", timezone(timedelta(hours=2))),
        (f"{STAMP}-0330 stderr F ", "", timezone(-timedelta(hours=3, minutes=30))),
    ],
)
def test_the_time_stamp_of_a_collector_is_kept(before: str, source: str, zone: timezone) -> None:
    entry, frame = _both(before)
    assert entry == LogLine(TEXT, source, "DP1 TP3", AT, STAMPED.replace(tzinfo=zone), is_entry=True)
    assert frame == LogLine(FRAME, source, "DP1 TP3", None, STAMPED.replace(tzinfo=zone))


def test_docker_json_lines_are_read() -> None:
    (line,) = _lines(f'{{"log":"\\u001b[32m{ENTRY}\\u001b[0m\\n","stream":"stderr","time":"{STAMP}Z"}}')
    assert line == LogLine(TEXT, "", "DP1 TP3", AT, STAMPED.replace(tzinfo=timezone.utc), is_entry=True)
    cut = '{"log":"' + ENTRY
    assert _lines(cut)[0].text == TEXT


def test_a_traceback_goes_on_with_the_last_rank_of_its_own_pod() -> None:
    ours, theirs = "[pod/chat-0/sglang] ", "[pod/chat-1/sglang] "
    lines = _lines(ours + ENTRY, theirs + ENTRY.replace("TP3", "TP0"), ours + FRAME, theirs + FRAME)
    assert [line.rank for line in lines] == ["DP1 TP3", "DP1 TP0", "DP1 TP3", "DP1 TP0"]


def test_the_last_text_of_a_progress_bar_is_kept() -> None:
    (line,) = _lines("chat-1 | Capturing:   0%|   | 0/23\rCapturing: 100%|###| 23/23" + ENTRY + "\r")
    assert line == LogLine(TEXT, "chat-1", "DP1 TP3", AT, is_entry=True)


@given(st.binary(max_size=200))
def test_no_line_before_it_changes_an_entry(junk: bytes) -> None:
    parse = line_parser()
    parse(junk.decode("utf-8", "replace"))
    assert parse(ENTRY) == LogLine(TEXT, "", "DP1 TP3", AT, is_entry=True)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_log_that_windows_wrote_has_the_same_lines(tmp_path: Path, encoding: str) -> None:
    path, text = tmp_path / "log", f"{ENTRY}\r\n50%\r100% \u2588\n{'x' * 70_000}\n{FRAME}"
    path.write_text(text)
    plain, wide = list(log_pieces(path)), f"\ufeff{text}".encode(encoding)
    for raw in (wide, gzip.compress(wide), wide[:-1]):  # the last one is still written
        path.write_bytes(raw)
        assert list(log_pieces(path))[:4] == plain[:4] and len(plain) == 5

"""Measured starts in a process of their own, on the CPU here: what is left of one that is killed."""

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.memory.core.measure import measure
from sgl_tune.memory.core.predict import read_report
from tests.memory.starts import DEMO_ON_CPU, make_start

QUIET = Output(Format.quiet)


def test_a_killed_start_leaves_what_it_completed(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    killer = threading.Thread(target=_kill_in, args=("kv pool", file))
    killer.start()
    (report,) = measure([make_start(**DEMO_ON_CPU)], file, QUIET, device="cpu")
    killer.join()
    assert report.verdict == "unfinished"
    done = [phase.name for phase in report.phases]
    assert done[:2] == ["communicator", "weights"] and report.run.failed_in not in done
    assert read_report(file).run == report.run


def _kill_in(phase: str, file: Path, most: int = 9) -> None:
    """So many children of this process, as soon as the file says that the phase has begun."""
    deadline, children = time.monotonic() + 60, list[int]()
    while time.monotonic() < deadline:
        children = children or _children()
        if children and file.exists() and f'"begin", "phase": "{phase}"' in file.read_text():
            for child in children[:most]:
                os.kill(child, signal.SIGKILL)
            return
        time.sleep(0.001)


def _children() -> list[int]:
    me = str(os.getpid())
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] == me and "sgl_tune.memory.core.measure" in (status.parent / "cmdline").read_text():
            found.append(int(status.parent.name))
    return found


def test_ranks_that_talk_are_measured_together_in_every_phase(tmp_path: Path) -> None:
    start = make_start(**{**DEMO_ON_CPU, "tp": 2})
    starts = [replace(start, rank=rank) for rank in range(2)]
    reports = measure(starts, tmp_path / "run.jsonl", QUIET, device="cpu")
    told = [(report.verdict, report.whose.rank_name) for report in reports]
    assert told == [("fits", "TP0"), ("fits", "TP1")]
    assert [phase.name for phase in reports[0].phases][-2:] == ["decode graphs", "ready"]
    assert (reports[0].whose.source, reports[0].whose.title) == ("measured", "demo-moe")
    assert reports[0].sizes == reports[1].sizes and reports[0].sizes.kv_tokens
    assert read_report(tmp_path / "run.1.jsonl").run == reports[1].run


def test_where_one_rank_is_killed_the_others_are_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    start = make_start(**{**DEMO_ON_CPU, "tp": 2})
    killer = threading.Thread(target=_kill_in, args=("weights", file, 1))
    killer.start()
    began = time.monotonic()
    reports = measure([replace(start, rank=rank) for rank in range(2)], file, QUIET, device="cpu")
    killer.join()
    assert time.monotonic() - began < 60
    assert sorted(report.verdict for report in reports) == ["failed", "unfinished"]

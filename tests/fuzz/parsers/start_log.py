"""A server's log, for `start-report`: never more seconds than there were, and never a traceback."""

from __future__ import annotations

from pathlib import Path
from random import Random

from sgl_tune.errors import UsageError
from sgl_tune.start_report.against import compared
from sgl_tune.start_report.html import render_page
from sgl_tune.start_report.markdown import report_lines
from sgl_tune.start_report.read import read_start
from tests.fuzz.mutate import mutated, of_bytes, of_lines, of_numbers
from tests.fuzz.parser import Parser
from tests.sgl_tune.running import ROOT
from tests.sgl_tune.start_report.logs import entry, flashinfer, head, loaded, served

PUBLIC = ROOT / "tests" / "sgl_tune" / "start_report" / "public"
_TUNED = (
    entry(23, "Running FlashInfer autotune with cache: /c/rank.json")
    + flashinfer(24, "Building JIT module norm; this can take several minutes on first use.")
    + flashinfer(30, "[Autotuner]: Loaded 42 configs from /c/rank.json")
    + "[AutoTuner]: Tuning op: 100%|####| 21/21 [00:12<00:00,  1.7profile/s]\n"
    + entry(40, "Try DeepGEMM JIT Compiling for <GEMM> N=1, K=2, num_groups=1 with all Ms.")
    + "DeepGEMM warmup: 100%|####| 9/9 [00:03<00:00,  1.7it/s]\n"
    + entry(80, "FlashInfer autotune completed.")
)
_SEEDS = (
    (head() + loaded() + _TUNED + served(86)).encode(),
    *(path.read_bytes() for path in sorted(PUBLIC.glob("*.log"))),
)


def _make(random: Random) -> bytes:
    return mutated(_SEEDS, random, of_numbers, of_numbers, of_bytes, of_lines)


def _read(raw: bytes, folder: Path) -> None:
    (folder / "server.log").write_bytes(raw)
    report = read_start(folder / "server.log", None, None, lambda count: None)
    named = sum(phase.seconds for phase in report.phases)
    assert named <= report.wall_seconds + 1e-3 and report.unexplained_seconds >= 0
    assert abs(named + report.unexplained_seconds - report.wall_seconds) < 1e-3
    assert render_page(report, compared(report, report), "log") and list(report_lines(report))


PARSER = Parser(_make, _read, ours=(UsageError,))

"""A pipe or a device where a file was named: refused by its name, at once, and never waited for."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.sgl_tune.cache.caches import KEY, cache_folder, good, write_ranks
from tests.sgl_tune.running import PROGRAM, ROOT, Ran, environment, run, run_here

LOG = ROOT / "tests/sgl_tune/start_report/public/2026-04-qwen3-8b.log"

ASKED = ("--model", "demo-moe", "--gpu", "l40s")
NAMED = {
    "--target": ("verify", "--target"),
    "inspect": ("inspect",),
    "verify": ("verify",),
    "diff": ("diff", "GOOD"),
    "prune": ("prune", "--stale"),
    "--log": ("mem-report", "--log"),
    "start-report": ("start-report",),
}
SAID = ("is no regular file", "no cache", "not a folder")


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def _check_refused(ran: Ran, name: Path) -> None:
    assert ran.code == 2 and ran.out == "" and "bug" not in ran.err
    assert str(name) in ran.err and any(said in ran.err for said in SAID)


@pytest.mark.parametrize("named", NAMED)
def test_a_pipe_or_a_device_that_was_named_is_refused(tmp_path: Path, pipe: Path, named: str) -> None:
    if NAMED[named][0] == "mem-report":
        pytest.importorskip("torch")
    (tmp_path / "good.json").write_bytes(good())
    given = [tmp_path / "good.json" if word == "GOOD" else word for word in NAMED[named]]
    for name in (pipe, Path("/dev/zero")):
        _check_refused(run(*given, name), name)


def test_a_pipe_that_a_shell_opened_is_read_as_standard_input_is(tmp_path: Path) -> None:
    """For `<(kubectl logs POD)` the shell that started us writes, so no reader waits for a writer."""
    target = ROOT / "cache-examples" / "h200.env.json"
    cache = ROOT / "cache-examples" / "cache"
    for line in (f"start-report <(cat {LOG}) -q", f"verify {cache} --target <(cat {target}) -q"):
        done = subprocess.run(
            ["bash", "-c", f"{' '.join(PROGRAM)} {line}"],
            capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), line


def test_a_pipe_or_a_device_is_not_written_over(pipe: Path) -> None:
    pytest.importorskip("torch")
    ran = run("mem-report", *ASKED, "--max-running-requests", "8", "--html", pipe)
    assert ran.code == 2 and f"{pipe} cannot be written" in ran.err and pipe.is_fifo()


def test_pipes_inside_a_cache_are_named_and_hold_nobody_up(tmp_path: Path) -> None:
    folder = cache_folder(tmp_path)
    write_ranks(folder, ["rank_tp0_pp0_dp0.json", "rank_tp1_pp0_dp0.json"])
    for name in ("rank_tp2_pp0_dp0.json", "sgl-tune.json"):
        os.mkfifo(folder / name)
    store = tmp_path / "autotune" / "v2" / KEY
    (store / "entries").mkdir(parents=True)
    for path in (store / "manifest.json", store / "entries" / "0123.json"):
        os.mkfifo(path)
    for command, codes in (("inspect", (0,)), ("verify", (1,)), ("prune --stale -y", (0,))):
        ran = run(*command.split(), tmp_path)
        assert ran.code in codes and "bug" not in ran.err
    said = run_here("inspect", tmp_path).out
    assert "rank_tp2_pp0_dp0.json: no regular file" in said and "sgl-tune.json: is no regular file" in said
    assert run("prune", tmp_path, "--max-size", "0", "-y").code == 0 and not folder.exists()

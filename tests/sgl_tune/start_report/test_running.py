"""A server that is started here: passed through, watched, ended, and nothing of it outlives us."""

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.sgl_tune.running import PROGRAM, environment
from tests.sgl_tune.schemas import schema_faults
from tests.warm.processes import runs, until

SERVE = Path(__file__).with_name("serve.sh")
pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


def _command(home: Path, *options: str, how: str = "serves") -> tuple[list[str], dict[str, str]]:
    words = [*PROGRAM, "start-report", *options, "--", f"HOME={home}", str(SERVE), how]
    return words, environment()


def _wait_for_the_end_of(home: Path, *names: str) -> None:
    pids = [int((home / name).read_text()) for name in names]
    until(lambda: not any(map(runs, pids)), 5)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Any, Path]:
    home = tmp_path_factory.mktemp("home")
    words, settings = _command(home, "--stop-when-ready", "--format", "json", "-o", str(home / "report.json"))
    done = subprocess.run(words, capture_output=True, text=True, env=settings, timeout=60)
    return done, json.loads((home / "report.json").read_text()), home


def test_output_goes_through_as_it_was_written(stopped: Any) -> None:
    done, _, _ = stopped
    assert "Load weight begin" in done.stdout and "asked to end" in done.stdout + done.stderr
    assert "The server is fired up and ready to roll!\n" in done.stderr and done.returncode == 0


def test_the_report_has_the_beginning_the_compiler_and_what_was_written(stopped: Any) -> None:
    _, report, home = stopped
    phases = {phase["name"]: phase for phase in report["phases"]}
    assert schema_faults("start-report", report) == [] and report["ready"]
    assert phases["imports"]["seconds"] >= 0.3 and report["unexplained_seconds"] < 0.5
    assert phases["FlashInfer JIT"]["seconds"] > 0.2 and report["compiled"] == ["norm"]
    written = {one["store"]: one for one in report["written"]}
    assert written["triton"]["folder"] == f"{home}/.triton/cache" and written["triton"]["files"] == 3
    assert 0.3 < phases["Triton"]["seconds"] < 0.7, "between a kernel's stages"
    assert written["flashinfer-jit"]["files"] == 1


def test_nothing_of_it_outlives_us(stopped: Any) -> None:
    _wait_for_the_end_of(stopped[2], "child")


def test_a_start_that_dies_is_reported_and_its_code_is_ours(tmp_path: Path) -> None:
    words, settings = _command(tmp_path, how="dies")
    done = subprocess.run(words, capture_output=True, text=True, env=settings, timeout=60)
    assert done.returncode == 3 and "DIED after decode graphs" in done.stderr
    assert "ValueError: no such thing" in done.stderr
    _wait_for_the_end_of(tmp_path, "child")


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("echo hi; exit 7", 7, "with exit code 7"),
        ("kill -KILL $$", 137, "by SIGKILL"),
        ("true", 1, "with exit code 0"),
    ],
)
def test_a_command_ending_early_is_said_to_end(script: str, code: int, said: str, tmp_path: Path) -> None:
    told = tmp_path / "report.json"
    words = [*PROGRAM, "start-report", "--format", "json", "-o", str(told), "--", "bash", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=60)
    report = json.loads(told.read_text())
    assert (done.returncode, report["ready"], report["exit_code"]) == (code, False, code if code > 1 else 0)
    assert schema_faults("start-report", report) == []
    command = [*PROGRAM, "start-report", "--", *words[-3:]]
    shown = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60).stderr
    assert f": its command ended {said} in a phase that no line names\n" in shown
    assert "saves" not in shown, "a table of nothing"


def test_a_server_is_given_no_variable_that_sglang_takes_for_an_old_one_of_its_own() -> None:
    """SGLang copies each variable that begins with SGL_ to another name, and warns about it."""
    words = [*PROGRAM, "start-report", "-q", "--", "env"]
    settings = environment()
    said = subprocess.run(words, capture_output=True, text=True, env=settings, timeout=60).stdout
    given = {line.partition("=")[0] for line in said.splitlines()}
    assert len(given - settings.keys()) >= 1, "the mark by which its processes are found"
    assert not [name for name in given - settings.keys() if name.startswith("SGL_")]


def test_a_server_that_ends_by_itself_ends_us_with_its_code(tmp_path: Path) -> None:
    words, settings = _command(tmp_path, "-q", how="ends")
    assert subprocess.run(words, capture_output=True, env=settings, timeout=60).returncode == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_us_is_one_to_the_server(tmp_path: Path, number: int) -> None:
    words, settings = _command(tmp_path)
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=settings)
    assert child.stderr is not None
    while "store" not in child.stderr.readline():  # the report's own table
        pass
    child.send_signal(number)
    out, err = child.communicate(timeout=30)
    assert "asked to end" in out + err and child.returncode == 9
    _wait_for_the_end_of(tmp_path, "child")


def test_when_we_are_killed_the_server_goes_too(tmp_path: Path) -> None:
    words, settings = _command(tmp_path)
    child = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=settings
    )
    assert child.stderr is not None
    while "store" not in child.stderr.readline():
        pass
    server = next(int(p) for p in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
                  if b"serve.sh" in Path(f"/proc/{p}/cmdline").read_bytes())  # fmt: skip
    child.kill()
    child.wait()
    until(lambda: not runs(server), 3)


_LEAVES_THE_GROUP = """
setsid bash -c 'setsid sleep 300 & echo $! > "$HOME/grandchild"; exec sleep 300' & echo $! > "$HOME/child"
(setsid bash -c 'echo $$ > "$HOME/orphan"; exec sleep 300' &)
trap '' TERM
for i in $(seq "$1"); do echo "[2026-11-29 05:00:00 TP0] Load weight begin. avail mem=100.00 GB"; done
echo "[2026-11-29 05:00:01] The server is fired up and ready to roll!"
sleep 300
"""


def _leaving(home: Path, lines: int, *options: str) -> list[str]:
    words = ("bash", "-c", _LEAVES_THE_GROUP, "bash", str(lines))
    return [*PROGRAM, "start-report", *options, "--", f"HOME={home}", *words]


def test_children_that_left_the_group_end_with_us_even_where_we_are_killed(tmp_path: Path) -> None:
    child = subprocess.Popen(_leaving(tmp_path, 1), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    while "store" not in child.stderr.readline():  # the report's own table
        pass
    child.kill()
    child.communicate(timeout=30)
    _wait_for_the_end_of(tmp_path, "child", "grandchild", "orphan")

"""The frame: exit codes, one line a failure, a fast start."""

import ast
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sgl_tune.cache.store import write_group
from sgl_tune.cache.transaction import locked
from sgl_tune.cli import pages as cli_pages
from tests.sgl_tune.running import PROGRAM, ROOT, environment, run, run_anew

HEAVY = ("torch", "transformers", "flashinfer", "numpy", "rich")


COMMANDS = list(cli_pages.COMMANDS)


def test_help_lists_the_commands_and_the_exit_codes() -> None:
    ran = run_anew("--help")
    assert ran.code == 0 and ran.err == ""
    assert all(f"\n  {name} " in ran.out for name in COMMANDS)
    titles = ["Start here:", "Ship:", "Maintain:"]
    assert [line for line in ran.out.splitlines() if line in titles] == titles
    assert "Exit codes: 0 good" in ran.out


def test_all_help_together_has_at_most_200_lines_of_options() -> None:
    helps = [run(*page.split(), "--help").out for page in ("", *COMMANDS, *cli_pages.pages())]
    options = [help.partition("\nOptions:\n")[2].partition("\n\n")[0] for help in dict.fromkeys(helps)]
    assert sum(line.startswith("  -") for lines in options for line in lines.splitlines()) <= 200


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_its_story_with_an_example(command: str) -> None:
    ran = run(command, "--help")
    words = " ".join(ran.out.split())
    assert ran.code == 0 and f"Example: sgl-tune {command}" in words and "Exit codes: 0 good, 1" in words
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "\x1b" not in ran.out


@pytest.mark.parametrize(
    "arguments", [("--help",), ("inspect", "--help"), ("inspect", "--format", "json", ".")]
)
def test_nothing_heavy_is_imported(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *PROGRAM[1:], *arguments],
        capture_output=True, text=True, env=environment(), cwd=ROOT / "docs",
    )  # fmt: skip
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "typer" in imported and not imported & set(HEAVY)


def test_a_failure_is_a_sentence_and_a_way_out(tmp_path: Path) -> None:
    ran = run("inspect", tmp_path / "gone")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {tmp_path}/gone: no such file or folder") and "\n  fix: " in ran.err
    for format in ("json", "quiet"):
        assert run("inspect", tmp_path / "gone", "--format", format).code == 2


def test_the_unexpected_is_one_line_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "hashlib.py").write_text("raise RuntimeError('a broken installation\\nwith more to say')")
    path = f"{tmp_path}:{ROOT}"
    plain = run_anew("prune", "--stale", PYTHONPATH=path)
    assert (plain.code, plain.out, len(plain.err.splitlines())) == (3, "", 2)
    assert plain.err.startswith("error: unexpected RuntimeError: a broken installation\n")
    assert "SGL_TUNE_TRACEBACK=1" in plain.err
    traced = run_anew("prune", "--stale", PYTHONPATH=path, SGL_TUNE_TRACEBACK="1")
    assert traced.code == 3 and "Traceback" in traced.err and "hashlib.py" in traced.err


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    for number in range(3000):
        folder = tmp_path / f"{number:08x}"
        folder.mkdir()
        (folder / "rank_tp0_pp0_dp0.json").write_text("{}")
    program = " ".join([*PROGRAM, "inspect", "--format", "quiet", str(tmp_path)])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {program} | head -1"],
        capture_output=True, text=True, env=environment(),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.count("\n") == 1


def test_ctrl_c_is_one_line_and_130(tmp_path: Path) -> None:
    folder = tmp_path / "flashinfer" / "autotune" / "0.7.2" / "sm90" / "aaaa000000000000"
    write_group([folder / "rank_tp0_pp0_dp0.json"], {}, {"gpu": "X"})
    with locked(folder):
        command = [*PROGRAM, "prune", str(tmp_path), "--max-size", "0", "-y"]
        child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment())
        time.sleep(1.0)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=20)
    assert (child.returncode, err) == (130, "error: interrupted\n")
    assert len(list(folder.glob("rank*"))) == 1


def test_no_module_does_work_at_import() -> None:
    """Modules contain only definitions, constants and imports: no files, processes or printing."""
    for path in [*(ROOT / "sgl_tune").rglob("*.py")]:
        for node in ast.parse(path.read_text()).body:
            called = node.value if isinstance(node, ast.Expr) else None
            assert not isinstance(called, ast.Call), f"{path}:{node.lineno}"

"""Wrong command lines: the name, the value, and the way out, whoever finds it wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

import sgl_tune
from tests.sgl_tune.running import PROGRAM, environment, run, run_here


@pytest.mark.parametrize(
    ("line", "error", "fix"),
    [
        ("inspekt", "inspekt: no such command", "did you mean inspect?"),
        ("frobnicate", "frobnicate: no such command", "the commands are warm, verify"),
        ("warm --dry-rnu", "--dry-rnu: `sgl-tune warm` has no such option", "did you mean --dry-run?"),
        ("warm --enable-metrics", "--enable-metrics: ", "launch_server --model-path MODEL --enable-metrics"),
        ("warm python -m sglang.launch_server", "-m: `sgl-tune warm` has", "`sgl-tune warm -- python ...`"),
        ("warm [2026-11-02", "'[2026-11-02' starts no", "read by sgl-tune mem-report --log FILE"),
        ("verify -- vllm serve m", "vllm serve m: not one path or key", "python -m sglang.launch_server"),
        ("warm --dry-run --", "after -- stands nothing", "a server's command"),
        ("warm deployment.yaml", "'deployment.yaml' starts", "a file is given with -f: -f deployment.yaml"),
        ("warm server.log", "'server.log' starts no", "read by sgl-tune mem-report --log server.log"),
        ("start-report --log x", "--log: ", "without a flag: `sgl-tune start-report FILE`"),
        ("doctor --model-config c.json", "--model-config: ", "`sgl-tune verify` takes this option"),
        ("warm -f two.yaml --kv-cache-dtype fp8", "--kv-cache-dtype: ", "into the file that -f names"),
        ("warm --tpp 8", "--tpp: `sgl-tune warm` has no such option", "did you mean --tp?"),
        (
            "warm --dry-run --model-path M --tp 4 --kv-cache-dtype fp8_e4m3 --gpu h200",
            "--kv-cache-dtype: `sgl-tune warm` has no such option",
            "after --: sgl-tune warm --dry-run --gpu h200 -- python -m sglang.launch_server"
            " --model-path M --tp 4 --kv-cache-dtype fp8_e4m3",
        ),
        (
            "verify --kv-cache-dtype fp8_e4m3 -- sglang serve M",
            "--kv-cache-dtype: `sgl-tune verify` has no such option",
            "put the server's flags after --: sgl-tune verify -- sglang serve M --kv-cache-dtype fp8_e4m3",
        ),
        ("verify --sglang-version 0.5.23", "--sglang-version: ", "write --server X.Y.Z"),
        ("mem-report --fast", "--fast: ", "leave it out: equal layers are folded"),
        ("warm --deployment chat", "--deployment: ", "write -f sgl-tune.toml:NAME"),
        ("env --zzzzzz", "--zzzzzz: `sgl-tune env` has no such option", "`sgl-tune env --help`"),
        ("warm --gpu", "--gpu needs a value", "one of h200, h100, h100-nvl"),
        ("inspect --filter", "--filter needs a value", "--filter 'FIELD OP VALUE'"),
        ("warm --tp x", "--tp: 'x' is not a valid int", "`sgl-tune warm --help-server`"),
        ("inspect --format jsn", "--format: 'jsn' is not one of", "did you mean json?"),
        (
            "warm --device cpu --gpu sm90 --model-path Qwen3-30B-A3B --moe-runner-backend flashinfer_cutlass",
            "the target is sm90, the devices here are cpu",
            "tune on a machine of its kind",
        ),
        ("warm --timeout 0", "--timeout: 0.0 is not in the range", "`sgl-tune warm --help`"),
        ("inspect a b", "unexpected extra argument", "`sgl-tune inspect --help`"),
        ("diff", "A is missing", "Example: sgl-tune diff rank_tp0_pp0_dp0.json rank_tp1_pp0_dp0.json"),
        ("diff 4aae", "B is missing", "Example: sgl-tune diff rank_tp0_pp0_dp0.json rank_tp1"),
        ("start-report", "no log is given", "give one file, - for standard input, or a command after --"),
        ("warm --dry-run --model Qwen3-30-A3B", "no model at 'Qwen3-30-A3B'", "did you mean Qwen3-30B-A3B?"),
    ],
)
def test_wrong_usage_names_the_mistake_and_the_way_out(line: str, error: str, fix: str) -> None:
    ran = run(*line.split())
    first, second = ran.err.splitlines()
    assert (ran.code, ran.out) == (2, "")
    assert first.startswith("error: ") and error in first
    assert second.startswith("  fix: ") and fix in second


LONG = "/tmp/" + "a/" * 2100


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("warm --cache-dir /proc/x", "/proc/x: no folder can be made there"),
        (f"warm --cache-dir {LONG}", "File name too long"),
        ("warm --cache-dir /dev/null", "/dev/null is a device, not a folder"),
        (f"inspect --cache-dir {LONG}", "File name too long"),
        ("inspect --cache-dir /dev/null", "--cache-dir /dev/null: a device, not a folder"),
        ("inspect /dev/null", "/dev/null: a device, no cache"),
        ("prune --stale /dev/null", "/dev/null: a device, not a folder"),
    ],
)
def test_a_place_where_no_cache_can_be_is_wrong_usage(line: str, error: str) -> None:
    """It is said at once, because a search may take minutes."""
    if line.startswith("warm"):
        pytest.importorskip("torch")
    ran = run(*line.split())
    assert ran.code == 2 and len(ran.err) < 4000
    assert error in next(text for text in ran.err.splitlines() if text.startswith("error: "))


@pytest.mark.parametrize("words", [("warm", "--tp", "1"), ("unpack", "x"), ("pull", "oci://localhost:1/a:1")])
def test_a_link_that_leads_nowhere_is_no_place(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("gone")
    for place in (tmp_path / "link", tmp_path / "link" / "inside"):
        assert run(*words, "--cache-dir", place).ends(2, f"{tmp_path}/link is a link that leads nowhere")


@pytest.mark.parametrize("command", ["warm", "verify", "export", "push x", "pull"])
@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300"])
def test_a_timeout_is_a_number_of_seconds(command: str, seconds: str) -> None:
    ran = run_here(*command.split(), "x", "--timeout", seconds)
    assert ran.code == 2 and ran.err.startswith("error: --timeout")


@pytest.mark.parametrize("verb", [("warm",), ("warm", "--dry-run"), ("verify",), ("mem-report",)])
@pytest.mark.parametrize("as_command", [False, True])
def test_more_stages_than_layers_are_refused_everywhere(verb: tuple[str, ...], as_command: bool) -> None:
    if verb == ("mem-report",):
        pytest.importorskip("torch")
    target = ("--gpu", "h200", "--server", "0.5.23")
    model = ("--model-path", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass")
    command = ("--", "python", "-m", "sglang.launch_server") if as_command else ()
    ran = run_here(*verb, *target, *command, *model, "--pp-size", "49")
    assert ran.code == 2 and "--pp 49: a stage needs a layer, and the model has 48" in ran.err


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["inspect", ""], "an argument"),
        (["prune", "--cache-dir", "", "--stale"], "--cache-dir"),
        (["prune", "--cache-dir=", "--stale"], "--cache-dir"),
        (["warm", "--dry-run", "--model-path", ""], "--model-path"),
        (["mem-report", "--html", "", "--", "sglang", "serve", "M"], "--html"),
    ],
)
def test_an_empty_word_is_no_folder(words: list[str], name: str, tmp_path: Path) -> None:
    """As a path it would be the current folder, and `prune` would look for caches there."""
    ran = run(*words, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {name} is empty\n  fix: is a variable in it not set?")


@pytest.mark.parametrize("command", ["warm --dry-run", "verify .", "prune . --stale"])
def test_a_folder_that_is_gone_is_told(command: str, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    line = f"cd gone && rmdir ../gone && exec {' '.join(PROGRAM)} {command}"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path, env=environment(), timeout=60
    )
    assert (
        "error: the folder that this was started in is gone\n  fix: cd to one that is there\n" in done.stderr
    )
    assert done.returncode == 2


def test_without_a_word_it_shows_its_commands() -> None:
    done = run()
    assert "Start here:" in done.out + done.err and "error" not in done.err


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "sgl_tune", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert (done.returncode, done.stdout) == (0, f"sgl-tune {sgl_tune.__version__}\n")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("start-report --max 90 server.log", "--max '90' is not a time such as 90s, 12h or 30d"),
        ("prune --older-than 1y .", "--older-than '1y' is not a time such as 90s, 12h or 30d"),
        ("prune --max-size 5X .", "--max-size '5X' is not a size such as 500MB or 1.5GiB"),
        ("prune --max-size 5 .", "--max-size '5' is a size without its unit"),
    ],
)
def test_a_time_or_a_size_is_told_with_its_option(line: str, error: str) -> None:
    ran = run(*line.split())
    assert (ran.code, ran.out) == (2, "") and ran.err.startswith(f"error: {error}\n")

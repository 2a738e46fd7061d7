"""A result lost on a full disk is work not done: exit code 3. A reader that leaves changes no exit code.

`SGL_TUNE_MATRIX=full pytest tests/sgl_tune/test_lost_output.py` runs every command in every format under
every disturbance; without it the formats take turns, and so do the disturbances.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path

from sgl_tune.cache.store import write_group
from tests.disks import mounted
from tests.sgl_tune.cache.corpus import TARGET, moe_entries
from tests.sgl_tune.running import PROGRAM, ROOT, environment


def _redirected(redirected: str, *arguments: str) -> tuple[int, str]:
    command = ["bash", "-c", f'exec "$@" {redirected}', "bash", *PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=SECONDS)
    return done.returncode, done.stderr


FULL = os.environ.get("SGL_TUNE_MATRIX") == "full"
SECONDS = 240
FORMATS = ("human", "json", "quiet")
REDIRECTED = {
    "stdout closed": ">&-",
    "stderr closed": "2>&-",
    "both closed": ">&- 2>&-",
    "all closed": "<&- >&- 2>&-",
    "stdout full": ">/dev/full",
    "both full": ">/dev/full 2>/dev/full",
}
LEAVES, GONE = "reader leaves after one line", "reader gone before the first"
DISTURBANCES = (*REDIRECTED, LEAVES, GONE)
FULL_DISK = ("stdout full", "both full")
USUAL = ("stdout closed", "stderr closed", "both closed", "stdout full", GONE)
LOST = 3
IN_TURN = 3  # of them for each command
BROKEN = "broken installation"
GROUPS = ROOT / "cache-examples" / "broken-groups"
STARTED = str(ROOT / "tests/sgl_tune/start_report/public/2026-08-qwen3-30b-h100.log")
FILES = ROOT / "cache-examples" / "broken"
PLANNED = (*("warm", "--dry-run", "--model", "qwen3-30b-a3b", "--tp", "2"), *("--gpu", "sm90"))
ROWS: dict[str, tuple[tuple[str, ...], int]] = {
    "inspect good": (("inspect", str(FILES.parent)), 0),
    "inspect wrong": (("inspect", "no-such-folder"), 2),
    "diff good": (("diff", str(FILES / "good.json"), str(FILES / "good.json")), 0),
    "diff bad": (("diff", str(FILES / "good.json"), str(FILES / "policy-cold.json")), 1),
    "diff wrong": (("diff", str(FILES / "good.json")), 2),
    "verify good": (("verify", str(FILES / "good.json")), 0),
    "verify bad": (("verify", str(GROUPS)), 1),
    "verify wrong": (("verify", "--target", "no-such-file"), 2),
    "prune good": (("prune", "CACHE", "--max-size", "0", "-y"), 0),
    "prune wrong": (("prune", "CACHE"), 2),
    "warm good": (PLANNED, 0),
    "warm wrong": (("warm", "--dry-run", "--no-such-flag"), 2),
    "mem-report good": (("mem-report", "--log", "GOOD_RUN"), 0),
    "mem-report bad": (("mem-report", "--log", "DEAD_RUN"), 1),
    "mem-report wrong": (("mem-report", "--log", "no-such-file"), 2),
    "start-report good": (("start-report", STARTED), 0),
    "start-report bad": (("start-report", STARTED, "--max", "1s"), 1),
    "env wrong": (("env", "--no-such-flag"), 2),
    **{
        f"{command} failed": ((command, *more, BROKEN), 3)
        for command, *more in (
            ("inspect", str(FILES.parent)), ("diff", "a", "b"), ("verify",), ("prune", "--stale"), PLANNED,
            ("mem-report", "--model", "demo-moe"), ("env",),
        )
    },
}  # fmt: skip
FORMATLESS: dict[str, tuple[tuple[str, ...], int]] = {
    "help": (("--help",), 0),
    "a command's help": (("verify", "--help"), 0),
    "version": (("--version",), 0),
    "no such command": (("no-such-command",), 2),
    "nothing asked": ((), 2),
}
SLOW: dict[str, tuple[tuple[str, ...], int]] = {
    "env good": (("env",), 0),
    "mem-report predicts": (("mem-report", "--model", "demo-moe", "--gpu", "l40s"), 0),
    "warm tunes": (("warm", "--device", "cpu", "--cache-dir", "EMPTY", "--max-running-requests", "8",
                    "--chunked-prefill-size", "8", "--moe-runner-backend", "flashinfer_cutlass",
                    "--prove", "none"), 0),
}  # fmt: skip

SILENT = {("verify good", "quiet"), ("diff good", "quiet"), ("warm good", "quiet")}  # these print no result


def _run_file(path: Path, dead: bool) -> Path:
    about = {"event": "run", "schema_version": 1, "device": "cuda", "total_bytes": 1 << 30, "gpu": "H200"}
    records = [about, *([{"event": "begin", "phase": "kv pool", "depth": 0}] if dead else [])]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def _prepared(folder: Path, arguments: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """The arguments with fresh files behind their names in capitals, and the environment."""
    folder.mkdir()
    names = {"EMPTY": folder / "empty"}
    if "CACHE" in arguments:
        names["CACHE"] = folder / "cache"
        key = names["CACHE"] / "flashinfer" / "autotune" / "0.7.2" / "sm90" / "aaaa000000000000"
        write_group([key / f"rank_tp{rank}_pp0_dp0.json" for rank in range(2)], moe_entries((1,)), TARGET)
    for name in {"GOOD_RUN", "DEAD_RUN"} & set(arguments):
        names[name] = _run_file(folder / name, dead=name == "DEAD_RUN")
    path = str(ROOT)
    if BROKEN in arguments:
        (folder / "dataclasses.py").write_text("raise RuntimeError('a broken installation')")
        path = f"{folder}:{ROOT}"
    kept = [str(names.get(argument, argument)) for argument in arguments if argument != BROKEN]
    return kept, environment(PYTHONPATH=path)


def _code(folder: Path, arguments: tuple[str, ...], disturbance: str | None) -> int:
    given, settings = _prepared(folder, arguments)
    command = [*PROGRAM, *given]
    if disturbance in REDIRECTED:
        command = ["bash", "-c", f'exec "$@" {REDIRECTED[disturbance]}', "bash", *command]
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": settings, "cwd": folder}
    if disturbance not in (LEAVES, GONE):
        return subprocess.run(command, stdout=subprocess.DEVNULL, timeout=SECONDS, **quiet).returncode
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0, **quiet) as child:
        assert child.stdout
        if disturbance == LEAVES:
            child.stdout.readline()
        child.stdout.close()
        return child.wait(SECONDS)


def _expected(code: int, disturbance: str | None, prints: bool) -> int:
    return LOST if disturbance in FULL_DISK and code in (0, 1) and prints else code


def _matrix() -> Iterator[tuple[str, tuple[str, ...], int, str | None]]:
    formats, usual = cycle(FORMATS), cycle(USUAL)

    def disturbances() -> tuple[str | None, ...]:
        return (None, *(DISTURBANCES if FULL else islice(usual, IN_TURN)))

    for name, (arguments, code) in ROWS.items():
        if arguments[0] == "mem-report" and find_spec("torch") is None:
            continue
        for disturbance in disturbances():
            for format in FORMATS if FULL else (next(formats),):
                yield (
                    f"{name} as {format}, {disturbance}",
                    (*arguments, "--format", format),
                    _expected(code, disturbance, prints=(name, format) not in SILENT),
                    disturbance,
                )
    for name, (arguments, code) in FORMATLESS.items():
        for disturbance in disturbances():
            yield f"{name}, {disturbance}", arguments, _expected(code, disturbance, True), disturbance


def test_every_command_ends_with_its_own_code_unless_its_result_is_lost(tmp_path: Path) -> None:
    rows = list(enumerate(_matrix()))

    def run(number: int, arguments: tuple[str, ...], disturbance: str | None) -> int:
        return _code(tmp_path / str(number), arguments, disturbance)

    with ThreadPoolExecutor(4) as pool:
        codes = pool.map(lambda row: run(row[0], row[1][1], row[1][3]), rows)
        wrong = {
            row[1][0]: (code, row[1][2]) for row, code in zip(rows, codes, strict=True) if code != row[1][2]
        }
    assert not wrong, f"{len(wrong)} of {len(rows)}: {wrong}"


def test_a_full_disk_under_the_output_is_an_error_of_its_own() -> None:
    for arguments, code in (ROWS["verify bad"], ROWS["verify good"], FORMATLESS["help"]):
        ended, said = _redirected(">/dev/full", *arguments)
        assert ended == LOST
        assert "error: not all of the output could be written: No space left on device\n" in said
        ended, said = _redirected(">&-", *arguments)
        assert ended == code and "not all of the output" not in said


def test_a_result_cut_short_on_a_full_tmpfs_is_not_a_success(tmp_path: Path) -> None:
    with mounted(tmp_path, "size=8k"):
        result, ballast = tmp_path / "result.json", tmp_path / "ballast"
        for arguments, left in ((("inspect", str(FILES.parent)), 4096), (PLANNED, 0)):
            ballast.write_bytes(b"x" * (8192 - left))
            ended, said = _redirected(f"> '{result}'", *arguments, "--format", "json")
            assert ended == LOST and "No space left on device" in said
            assert result.stat().st_size == left
            result.unlink()


def test_wrong_usage_stays_wrong_usage_on_a_full_disk() -> None:
    arguments, code = ROWS["verify wrong"]
    assert _redirected(">/dev/full 2>/dev/full", *arguments)[0] == code

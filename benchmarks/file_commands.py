"""inspect and verify on 1,000 rank files, against a bare `json.load` loop; and how fast `--help` is.

    python benchmarks/file_commands.py

Every command is a process of its own, the start of the interpreter included; the best of several rounds
counts, taken in turns. Two directories: as `warm` writes them (the eight ranks of a group are one content),
and one where all 1,000 files differ, which no healthy cache directory does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from sgl_tune.cache.record import read_cache_file, serialise

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "cache-examples/cache/flashinfer/autotune/0.7.2/sm90/4aaede739ed1db5a/rank_tp0_pp0_dp0.json"
RESULTS = Path(__file__).parent / "results"
GROUPS, RANKS = 125, 8
LOOP = """import json, sys
for path in sys.argv[1:]:
    with open(path) as file:
        json.load(file)
"""


def make_cache(root: Path, distinct: bool) -> list[Path]:
    """Files of the example's size; a tactic tells their contents apart."""
    example = read_cache_file(EXAMPLE)
    first = next(iter(example.entries))
    runner, _, policy = example.entries[first]
    paths = []
    for group in range(GROUPS):
        folder = root / "flashinfer" / "autotune" / "0.7.2" / "sm90" / f"{group:016x}"
        folder.mkdir(parents=True)
        for rank in range(RANKS):
            tactic = 1000 + (group * RANKS + rank if distinct else group)
            path = folder / f"rank_tp{rank}_pp0_dp0.json"
            path.write_bytes(
                serialise(example.metadata, {**example.entries, first: [runner, tactic, policy]})
            )
            paths.append(path)
    return paths


def seconds(command: Sequence[str]) -> float:
    """0 and 1 are both answers: where all files differ, the ranks do, and verify says so."""
    # As after an installation: with compiled modules, which a shell may have forbidden to write.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    start = time.perf_counter()
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )
    took = time.perf_counter() - start
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command[:5])} ended with {done.returncode}: {done.stderr}")
    return took


def measure(commands: dict[str, Sequence[str]], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(rounds):
        for name, command in commands.items():
            best[name] = min(best[name], seconds(command))
    return best


def measure_cache(distinct: bool, rounds: int) -> dict[str, float]:
    program = [sys.executable, "-m", "sgl_tune.cli"]
    with tempfile.TemporaryDirectory() as folder:
        paths = make_cache(Path(folder), distinct)
        commands = {
            "json.load loop": [sys.executable, "-c", LOOP, *map(str, paths)],
            "inspect": [*program, "inspect", "--cache-dir", folder],
            "inspect --format json": [*program, "inspect", "--cache-dir", folder, "--format", "json"],
            "verify": [*program, "verify", folder],
        }
        return measure(commands, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    print(f"{'':<28}{'seconds':>9}{'ratio':>8}")
    for label, distinct in (("equal ranks", False), ("1,000 different", True)):
        best = measure_cache(distinct, arguments.rounds)
        base = best["json.load loop"]
        print(f"{label}, {GROUPS * RANKS} files of {EXAMPLE.stat().st_size} bytes")
        for name, took in best.items():
            print(f"  {name:<26}{took:>9.3f}{took / base:>8.2f}")
        results[label] = {name: {"seconds": took, "ratio": took / base} for name, took in best.items()}
    help = measure({"--help": [sys.executable, "-m", "sgl_tune.cli", "--help"]}, arguments.rounds)["--help"]
    print(f"{'sgl-tune --help':<28}{help:>9.3f}")
    record = {
        "command": "python benchmarks/file_commands.py",
        "date": date.today().isoformat(),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.system()},
        "rounds": arguments.rounds,
        "help_seconds": help,
        "results": results,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "file_commands.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

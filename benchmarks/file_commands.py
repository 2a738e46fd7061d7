"""inspect and verify on 1,000 rank files, against a bare `json.load` loop; and how fast `--help` is.

    python benchmarks/file_commands.py

Every command is a process of its own, the start of the interpreter included; the best of several rounds
counts, taken in turns. Two directories: 125 deployments of eight ranks, whose files are equal as `warm`
writes them, and 1,000 deployments of one rank, where every file is another. The ratios are of CPU time (user
and system), which is what the wall says on an idle machine and does not change on a busy one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.timed import Cost as Timed
from benchmarks.timed import timed, write_result
from sgl_tune.cache.record import read_cache_file, serialise

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "cache-examples/cache/flashinfer/autotune/0.7.2/sm90/4aaede739ed1db5a/rank_tp0_pp0_dp0.json"
FILES = 1000
LOOP = """import json, sys
for path in sys.argv[1:]:
    with open(path) as file:
        json.load(file)
"""


@dataclass(frozen=True)
class Cost:
    wall: float = float("inf")
    cpu: float = float("inf")

    def best(self, other: Timed) -> Cost:
        return Cost(min(self.wall, other.wall), min(self.cpu, other.cpu))


def make_cache(root: Path, ranks: int) -> list[Path]:
    """Files of the example's size; a tactic tells the deployments' contents apart."""
    example = read_cache_file(EXAMPLE)
    first = next(iter(example.entries))
    runner, _, policy = example.entries[first]
    paths = []
    for deployment in range(FILES // ranks):
        folder = root / "flashinfer" / "autotune" / "0.7.2" / "sm90" / f"{deployment:016x}"
        folder.mkdir(parents=True)
        entries = {**example.entries, first: [runner, 1000 + deployment, policy]}
        for rank in range(ranks):
            path = folder / f"rank_tp{rank}_pp0_dp0.json"
            path.write_bytes(serialise(example.metadata, entries))
            paths.append(path)
    return paths


def measure(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, Cost]:
    best = dict.fromkeys(commands, Cost())
    for _ in range(rounds):
        for name, command in commands.items():
            best[name] = best[name].best(timed(command))
    return best


def measure_cache(ranks: int, rounds: int) -> dict[str, Cost]:
    program = [sys.executable, "-m", "sgl_tune.cli.app"]
    with tempfile.TemporaryDirectory() as folder:
        paths = make_cache(Path(folder), ranks)
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
    print(f"{'':<28}{'wall s':>9}{'CPU s':>9}{'ratio':>8}")
    for ranks in (8, 1):
        best = measure_cache(ranks, arguments.rounds)
        base = best["json.load loop"].cpu
        label = f"{FILES // ranks:,} deployments of {ranks} rank{'s' if ranks > 1 else ''}"
        print(f"{label}, {FILES:,} files of {EXAMPLE.stat().st_size:,} bytes")
        for name, cost in best.items():
            print(f"  {name:<26}{cost.wall:>9.3f}{cost.cpu:>9.3f}{cost.cpu / base:>8.2f}")
        results[label] = {name: {**asdict(cost), "ratio": cost.cpu / base} for name, cost in best.items()}
    help = measure({"--help": [sys.executable, "-m", "sgl_tune.cli.app", "--help"]}, arguments.rounds)[
        "--help"
    ]
    print(f"{'sgl-tune --help':<28}{help.wall:>9.3f}{help.cpu:>9.3f}")
    write_result("file_commands", arguments.rounds, help=asdict(help), results=results)


if __name__ == "__main__":
    main()

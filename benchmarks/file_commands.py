"""inspect and verify on 1,000 rank files, against a bare `json.load` loop; and how fast `--help` is.

    python benchmarks/file_commands.py

Every command is a process of its own, the start of the interpreter included, and they take turns. Two
directories: 125 deployments of eight ranks, whose files are equal as `warm` writes them, and 1,000 of one
rank, where every file is another. They are of twenty models, and each choice is drawn by itself. Quoted are
medians over the rounds, the ratios to the loop of the same round: of the wall's time, which is what a user
waits but says little on a busy machine, and of the CPU's, of all processes of a command together.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.timed import Cost, timed, write_result
from sgl_tune.cache.record import read_cache_file, serialise

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "cache-examples/cache/flashinfer/autotune/0.7.2/sm90/4aaede739ed1db5a/rank_tp0_pp0_dp0.json"
FILES = 1000
MODELS = 20
TACTICS = 130  # so many are tried on an H200
LOOP = """import json, sys
for path in sys.argv[1:]:
    with open(path) as file:
        json.load(file)
"""


def make_cache(root: Path, ranks: int) -> list[Path]:
    """Files of the example's size, as machines that each tuned for themselves leave them."""
    example = read_cache_file(EXAMPLE)
    draw = Random(7)
    paths = []
    for deployment in range(FILES // ranks):
        size = 1024 + 128 * (deployment % MODELS)
        entries = {
            key.replace("2048", str(size)): [runner, draw.randrange(TACTICS), policy]
            for key, (runner, _, policy) in example.entries.items()
        }
        folder = root / "flashinfer" / "autotune" / "0.7.2" / "sm90" / f"{deployment:016x}"
        folder.mkdir(parents=True)
        for rank in range(ranks):
            path = folder / f"rank_tp{rank}_pp0_dp0.json"
            path.write_bytes(serialise(example.metadata, entries))
            paths.append(path)
    return paths


def measure(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, dict[str, float]]:
    """Medians, and of the ratios to the first command in the same round."""
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            costs[name].append(timed(command))
    base = next(iter(costs.values()))
    return {
        name: {
            "wall": median(cost.wall for cost in found),
            "cpu": median(cost.cpu for cost in found),
            "wall_ratio": median(one.wall / other.wall for one, other in zip(found, base, strict=True)),
            "cpu_ratio": median(one.cpu / other.cpu for one, other in zip(found, base, strict=True)),
        }
        for name, found in costs.items()
    }


def measure_cache(ranks: int, rounds: int) -> dict[str, dict[str, float]]:
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
    print(f"{'':<28}{'wall s':>9}{'CPU s':>9}{'wall':>8}{'CPU':>8}")
    for ranks in (8, 1):
        found = measure_cache(ranks, arguments.rounds)
        label = f"{FILES // ranks:,} deployments of {ranks} rank{'s' if ranks > 1 else ''}"
        print(f"{label}, {FILES:,} files of about {EXAMPLE.stat().st_size:,} bytes")
        for name, told in found.items():
            figures = (
                f"{told['wall']:>9.3f}{told['cpu']:>9.3f}{told['wall_ratio']:>8.2f}{told['cpu_ratio']:>8.2f}"
            )
            print(f"  {name:<26}{figures}")
        results[label] = found
    help = measure({"--help": [sys.executable, "-m", "sgl_tune.cli.app", "--help"]}, arguments.rounds)[
        "--help"
    ]
    print(f"{'sgl-tune --help':<28}{help['wall']:>9.3f}{help['cpu']:>9.3f}")
    write_result("file_commands", arguments.rounds, help=help, results=results)


if __name__ == "__main__":
    main()

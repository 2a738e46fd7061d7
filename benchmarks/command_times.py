"""What each command costs without a server and without a GPU: help, an error, and a usual call.

    python benchmarks/command_times.py

Every command is a process of its own, interpreter included. Quoted is the best of the rounds:
CPU seconds of all its processes, and the wall's, which says little on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.timed import RESULTS, ROOT, Cost, timed
from sgl_tune.cli.pages import COMMANDS

EXAMPLES = ROOT / "cache-examples"
LOG = ROOT / "tests/sgl_tune/data/public_logs/prefill-graphs.log"
MODEL = "--model-path Qwen/Qwen3-30B-A3B --moe-runner-backend flashinfer_cutlass"
START = f"-- python -m sglang.launch_server {MODEL}"
ANSWERS = (0, 1, 2)


def usual(work: Path) -> Iterator[str]:
    """In an order in which each finds what it needs."""
    cache, target = work / "cache", EXAMPLES / "h200.env.json"
    yield f"inspect {cache}"
    yield f"inspect {cache}/flashinfer/autotune/0.7.2/sm90/4aaede739ed1db5a --entries"
    yield f"diff 4aae ad60 --cache-dir {cache}"
    yield f"verify {cache} --target {target}"
    yield f"verify --server core --cache-dir {cache} --gpu h200 {START}"
    yield f"verify --server core --fleet {EXAMPLES}/nodes.jsonl {START}"
    yield f"doctor --server core {START}"
    yield f"prune --stale --dry-run {cache}"
    yield "env"
    yield f"export 4393 --cache-dir {cache} --to vllm -o {work}/vllm"
    yield f"pack 4aae --cache-dir {cache} -o {work}/b.tar.gz"
    yield f"push {work}/b.tar.gz file://{work}/store/"
    yield f"pull file://{work}/store/b.tar.gz -o {work}/p.tar.gz"
    yield f"unpack {work}/b.tar.gz --cache-dir {work}/new"
    yield f"relocate {cache}"
    yield f"mem-report --log {LOG}"
    yield f"start-report {LOG}"
    yield "server list"
    yield f"warm --dry-run --server core --gpu h200 {START}"
    yield f"mem-report --server core --gpu h200 {START}"


def best(words: str, rounds: int) -> Cost:
    command = [sys.executable, "-m", "sgl_tune.cli.app", *words.split()]
    return min((timed(command, ANSWERS) for _ in range(rounds)), key=lambda cost: cost.cpu)


def lines(rounds: int) -> Iterator[str]:
    system = f"{os.cpu_count()} CPUs, Python {platform.python_version()}, {platform.system()}"
    yield f"# What each command costs\n\n`python benchmarks/command_times.py`, {date.today()}, {system}, load"
    yield f"{os.getloadavg()[0]:.0f} at its begin. Best of {rounds} rounds.\n"
    yield "| command | CPU s | wall s | MB |\n|---|---:|---:|---:|"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        shutil.copytree(EXAMPLES / "cache", work / "cache")
        (work / "store").mkdir()
        shown = [("--help", "--help"), ("--bogus", "--bogus")]
        shown += [(f"{name} {word}", f"{name} {word}") for word in ("--help", "--bogus") for name in COMMANDS]
        shown += [(words, words.replace(folder, "W").replace(f"{ROOT}/", "")) for words in usual(work)]
        for words, name in shown:
            cost = best(words, rounds)
            yield f"| `{name}` | {cost.cpu:.2f} | {cost.wall:.2f} | {cost.megabytes:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    (RESULTS / "command_times.md").write_text("\n".join(lines(parser.parse_args().rounds)) + "\n")


if __name__ == "__main__":
    main()

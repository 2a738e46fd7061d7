"""inspect and verify over 60,000 files of stores of compiled kernels: seconds and memory.

    python benchmarks/store_commands.py

Every command is a process of its own, the interpreter's start included; of several rounds the best counts.
The root is moved after it was made, so that verify asks for every kernel's old place, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.timed import timed, write_result
from tests.sgl_tune.stores import make

_ANSWERS = (0, 1)


def fill(root: Path) -> int:
    """As a large fleet's: mostly Triton's, with hundreds of each other kind."""
    for number in range(6_600):
        make.triton_kernel(root / "triton", f"kernel_{number}")
    for number in range(1_000):
        make.graph(root / "inductor", f"graph_{number}")
        make.cute_object(root / "cute_aot", f"object_{number}")
    for number in range(400):
        make.tilelang_kernel(root / "tilelang", f"kernel_{number}")
        make.gemm(root / "deep_gemm", f"gemm_{number}")
    for number in range(150):
        make.flashinfer_module(root / ".cache/flashinfer", f"module_{number}")
        make.sglang_leaf(root / "jit", f"sgl_kernel_jit_{number}")
    return sum(len(files) for _, _, files in os.walk(root))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    program = [sys.executable, "-m", "sgl_tune.cli.app"]
    with tempfile.TemporaryDirectory() as folder:
        files = fill(Path(folder) / "made")
        root = str((Path(folder) / "made").rename(Path(folder) / "moved"))
        commands = {
            "inspect": [*program, "inspect", root],
            "inspect --store triton": [*program, "inspect", "--store", "triton", root],
            "verify": [*program, "verify", root],
            "verify --format json": [*program, "verify", root, "--format", "json"],
            "relocate": [*program, "relocate", root],
            "verify, relocated": [*program, "verify", root],
        }
        costs = {name: [timed(command, _ANSWERS)] for name, command in commands.items()}
        for name in [name for name in commands if name != "relocate"] * (arguments.rounds - 1):
            costs[name].append(timed(commands[name], _ANSWERS))
    best = {name: min(found, key=lambda cost: cost.wall) for name, found in costs.items()}
    print(f"{files:,} files{'':<18}{'wall s':>9}{'CPU s':>9}{'MB':>8}")
    for name, cost in best.items():
        print(f"{name:<30}{cost.wall:>9.2f}{cost.cpu:>9.2f}{cost.megabytes:>8.0f}")
    results = {name: asdict(cost) for name, cost in best.items()}
    write_result("store_commands", arguments.rounds, files=files, results=results)


if __name__ == "__main__":
    main()

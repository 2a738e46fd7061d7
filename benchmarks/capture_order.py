"""Decode graphs captured largest first and smallest first: how far the pool grows, measured and predicted.

    PYTHONPATH=. python benchmarks/capture_order.py --preset Llama-3.1-8B --layers 4

Each order runs in a process of its own, because a graph's memory outlives it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from benchmarks.record import write_record
from benchmarks.startup_memory import preset
from runtime.devices.base import Device
from runtime.devices.cuda import Cuda
from runtime.devices.meta import Meta
from runtime.forward.comm import VirtualCommunicator
from runtime.server.choices.graphs import decode_graph_sizes
from runtime.server.config import Graphs, Kernels, RuntimeConfig
from runtime.server.parallel import ParallelConfig
from runtime.server.units import MIB
from runtime.start.model_runner import ModelRunner
from runtime.start.options import StartOptions

ORDERS = ("descending", "ascending")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="Llama-3.1-8B")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--max-bs", type=int, default=256)
    parser.add_argument("--moe-runner-backend", default="flashinfer_cutlass")
    parser.add_argument("--one", choices=ORDERS, help="measure one order in this process")
    parser.add_argument("--out", help="write the record here (default: $OUT or benchmarks/results)")
    return parser.parse_args()


def capture(args: argparse.Namespace, order: str, device: Device) -> dict[str, Any]:
    parallel = ParallelConfig(tp=args.tp)
    runtime = RuntimeConfig(
        kernels=Kernels(moe=args.moe_runner_backend),
        graphs=Graphs(decode_graph_sizes(args.max_bs)),
        disable_autotune=True,
    )
    runner = ModelRunner(
        preset(args.preset, args.layers),
        parallel,
        runtime,
        device,
        lambda: VirtualCommunicator(parallel),
        options=StartOptions(kv_tokens=65536, graphs_ascending=order == "ascending"),
    )
    runner.start()
    phases = {phase.name: phase for phase in runner.recorder.phases}
    before, after = phases["attention backend"], phases["decode graphs"]
    assert runner.decode_graphs is not None
    return {
        "graphs": len(runner.decode_graphs.graphs),
        "pool_growth": after.reserved_bytes - before.reserved_bytes,
        "reserved_peak": after.reserved_peak_bytes,
        "non_torch_growth": after.non_torch_bytes - before.non_torch_bytes,
        "seconds": after.seconds,
    }


def measure(args: argparse.Namespace, order: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.capture_order", *sys.argv[1:], "--one", order]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    args = parse()
    if args.one:
        print(json.dumps(capture(args, args.one, Cuda())))
        return
    rows = {}
    print("order       graphs   pool growth MiB measured  predicted   ratio   non-torch MiB   seconds")
    for order in ORDERS:
        real = measure(args, order)
        predicted = capture(args, order, Meta(140 << 30))
        ratio = predicted["pool_growth"] / real["pool_growth"]
        rows[order] = {"measured": real, "predicted": predicted, "ratio": ratio}
        print(
            f"{order:<11} {real['graphs']:>6} {real['pool_growth'] / MIB:>25.1f} "
            f"{predicted['pool_growth'] / MIB:>10.1f} {ratio:>7.3f} {real['non_torch_growth'] / MIB:>15.1f} "
            f"{real['seconds']:>9.2f}"
        )
    path = write_record("capture_order", {"arguments": vars(args), "orders": rows}, args.out)
    print(f"written to {path}")


if __name__ == "__main__":
    main()

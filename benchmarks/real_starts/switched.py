"""Prefills of one start of a stock SGLang, with its package's Triton files and with ROOT's in turns.

    PYTHONPATH=. PYTHON benchmarks/real_starts/switched.py OUT.json ROOT -- python -m sglang.launch_server ...

Two starts of a kind differ by more than the files do where launches bind a prefill. So here the look-up of
one process changes (SGLANG_MOE_CONFIG_DIR), and each round measures it with the package, ROOT, and the
package again. Prefills must run without graphs. CASES and ROUNDS name the work.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.real_starts.in_turns import VARIABLE
from benchmarks.real_starts.served import NO_PROFILE, Counter, free_port, started

CASES = json.loads(os.environ.get("CASES", "[[1, 256], [1, 1024], [16, 64], [1, 2048]]"))
ROUNDS = int(os.environ.get("ROUNDS", "24"))
STEPS = 3


def main() -> None:
    out, root = Path(sys.argv[1]), sys.argv[2]
    argv = sys.argv[sys.argv.index("sglang.launch_server") + 1 :]
    runner = started([*argv, "--nccl-port", str(free_port())], 0, Counter())
    found: dict[str, Any] = {"argv": argv, "rounds": ROUNDS, "prefill_ms": {}}
    for case in CASES:
        times = measured(runner, case, root)
        found["prefill_ms"]["x".join(map(str, case))] = times
        stock, ours, again = (median(one) for one in times.values())
        gains = sorted(first / second for first, second in zip(times["stock"], times["root"], strict=True))
        print(
            f"{case}: stock {stock:.3f} ms, root {ours:.3f}, stock again {again:.3f}; root/stock"
            f" {ours / stock:.3f}, itself {again / stock:.3f}, gain {median(gains):.3f}"
            f" ({gains[len(gains) // 4]:.3f} to {gains[-len(gains) // 4]:.3f})",
            flush=True,
        )
    out.write_text(json.dumps(found, indent=1) + "\n")
    os._exit(0)


def measured(runner: Any, case: tuple[int, int], root: str) -> dict[str, list[float]]:
    """Milliseconds of each round. The first two rounds compile, and are not kept."""
    from sglang.benchmark import one_batch

    from runtime.moe_configs.inside.places import places

    bench = one_batch._TorchBenchRunner(runner)
    batch, length = case
    times: dict[str, list[float]] = {"stock": [], "root": [], "stock again": []}
    for number in range(ROUNDS + 2):
        for arm in list(times)[:: 1 if number % 2 else -1]:
            os.environ.pop(VARIABLE, None)
            if arm == "root":
                os.environ[VARIABLE] = root
            places().configs.get_moe_configs.cache_clear()
            for _ in range(2):  # the first one looks the files up
                requests = one_batch.prepare_synthetic_inputs_for_latency_test(batch, length)
                row = one_batch.latency_test_run_once(
                    "", bench, lambda *_: None, requests, batch, length, STEPS, 0, *NO_PROFILE
                )
            if number > 1:
                times[arm].append(round(1e3 * row["prefill_latency"], 3))
    return times


if __name__ == "__main__":
    main()

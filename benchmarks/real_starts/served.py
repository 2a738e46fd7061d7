"""One start of a stock SGLang, a GPU per rank: what it tunes, and what prefill and decode take afterwards.

    PYTHONPATH=. SERVER_PYTHON benchmarks/real_starts/served.py OUT.json -- python -m sglang.launch_server ...

Its cache directory is SGLANG_CACHE_DIR, as of any start. SERVE names batches and lengths; each is
prefilled and decoded several times, by the loop of SGLang's own `bench_one_batch`. OUT.json gets what rank 0
profiled, the seconds and the times; its log goes to stdout and stderr, and has a line READY before it serves.
Rank N has OUT.rankN.json and OUT.rankN.log. Run it under `timeout`: a rank waits for all others.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.real_starts.referee import allow_missing, make_scheduler, read_arguments, wrap

SERVE = json.loads(os.environ.get("SERVE", "[[1, 8192], [8, 1024], [64, 128], [1, 512]]"))
ROUNDS, STEPS = 6, 24


class Counter:
    """What FlashInfer's tuner measures, and the seconds of the step in which SGLang lets it."""

    def __init__(self) -> None:
        self.profiled, self.autotune_seconds = 0, 0.0

    def watch(self) -> None:
        from flashinfer.autotuner import AutoTuner
        from sglang.srt.model_executor.runner import base_runner

        wrap(AutoTuner, "_profile_single_kernel", self._counted)
        wrap(base_runner.BaseRunner, "_flashinfer_autotune", self._timed)

    def _counted(self, call: Callable[[], Any], *args: Any) -> Any:
        self.profiled += 1
        return call()

    def _timed(self, call: Callable[[], Any], *args: Any) -> Any:
        import torch

        torch.cuda.synchronize()
        began = time.monotonic()
        try:
            return call()
        finally:
            torch.cuda.synchronize()
            self.autotune_seconds += time.monotonic() - began


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def started(argv: list[str], rank: int, counter: Counter) -> Any:
    import torch

    server = read_arguments(argv)
    torch.cuda.set_device(rank)
    scheduler = make_scheduler(server, rank)
    counter.watch()
    allow_missing("deep_gemm")
    scheduler.init_model_worker()
    return scheduler.tp_worker.model_runner


def served(runner: Any, counter: Counter) -> Iterator[dict[str, Any]]:
    from sglang.benchmark import one_batch

    bench = one_batch._TorchBenchRunner(runner)
    for batch, length in SERVE:
        before, rows = counter.profiled, []
        for _ in range(ROUNDS):
            requests = one_batch.prepare_synthetic_inputs_for_latency_test(batch, length)
            rows.append(
                one_batch.latency_test_run_once(
                    "", bench, lambda *_: None, requests, batch, length, STEPS, 0, *NO_PROFILE
                )
            )
        yield {
            "batch": batch,
            "length": length,
            "prefill_ms": told(rows, "prefill_latency"),
            "decode_ms": told(rows, "median_decode_latency"),
            "profiled": counter.profiled - before,
        }


NO_PROFILE = (False, False, ["GPU"], "", "prefill", 0)


def told(rows: list[dict[str, float]], name: str) -> dict[str, float]:
    """The first round compiles what only serving needs."""
    times = [1e3 * row[name] for row in rows[1:]]
    return {"best": round(min(times), 3), "median": round(median(times), 3)}


def start_rank(rank: int, argv: list[str], out: Path) -> None:
    counter, began = Counter(), time.monotonic()
    runner = started(argv, rank, counter)
    found: dict[str, Any] = {
        "argv": argv,
        "rank": rank,
        "cache_dir": os.environ.get("SGLANG_CACHE_DIR"),
        "seconds": round(time.monotonic() - began, 2),
        "profiled": counter.profiled,
        "autotune_seconds": round(counter.autotune_seconds, 3),
        "kv_tokens": runner.max_total_num_tokens,
    }
    out.write_text(json.dumps(found, indent=1))
    print("READY", flush=True)
    found["served"] = list(served(runner, counter))
    out.write_text(json.dumps(found, indent=1) + "\n")


def other_rank(rank: int, argv: list[str], out: Path) -> None:
    log = os.open(out.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    start_rank(rank, argv, out)
    os._exit(0)


def ranks_of(argv: list[str]) -> int:
    sizes = argparse.ArgumentParser(allow_abbrev=False)
    sizes.add_argument("--tp", "--tp-size", dest="tp", type=int, default=1)
    return int(sizes.parse_known_args(argv)[0].tp)


def main() -> None:
    out = Path(sys.argv[1])
    argv = sys.argv[sys.argv.index("sglang.launch_server") + 1 :]
    argv += ["--nccl-port", str(free_port())]
    out.parent.mkdir(parents=True, exist_ok=True)
    spawn = multiprocessing.get_context("spawn")
    others = [
        spawn.Process(target=other_rank, args=(rank, argv, out.with_suffix(f".rank{rank}.json")), daemon=True)
        for rank in range(1, ranks_of(argv))
    ]
    for one in others:
        one.start()
    start_rank(0, argv, out)
    for one in others:
        one.join(30)
    os._exit(0)


if __name__ == "__main__":
    main()

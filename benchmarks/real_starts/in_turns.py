"""Starts of a stock SGLang that live beside each other on one GPU, and serve in turns.

    PYTHONPATH=. PYTHON benchmarks/real_starts/in_turns.py OUT.json ROOT -- python -m sglang.launch_server ...

Two starts look for their Triton configurations in the server's package, two in ROOT (SGLANG_MOE_CONFIG_DIR).
A round of prefill and decode goes from start to start, there and back, and only one of them works at a time:
so what differs between two starts of the same kind is the noise. OUT.json gets all times, and which
configuration each start took for each batch; the logs lie beside it. CASES and ROUNDS name the work.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.real_starts.referee import wrap
from benchmarks.real_starts.served import NO_PROFILE, Counter, free_port, started

ARMS = json.loads(os.environ.get("ARMS", '["stock", "root", "stock again", "root again"]'))
CASES = json.loads(os.environ.get("CASES", "[[1, 1024], [8, 1024], [16, 64], [64, 32]]"))
ROUNDS, STEPS = int(os.environ.get("ROUNDS", "6")), 16
VARIABLE = "SGLANG_MOE_CONFIG_DIR"
KINDS = ("stock", "root")
Times = dict[str, list[float]]


class Choices:
    """What the look-up of SGLang's fused MoE answered, by batch size, and how many experts the rows met."""

    def __init__(self) -> None:
        self.taken: dict[str, Any] = {}
        self.experts: dict[str, int] = {}

    def watch(self) -> None:
        """Wherever these functions were imported by name."""
        around = {"try_get_optimal_moe_config": self._answered, "_prepare_fused_moe_run": self._counted}
        for module in list(sys.modules.values()):
            for name, one in around.items():
                if getattr(module, "__name__", "").startswith("sglang.") and name in vars(module):
                    wrap(module, name, one)

    def _answered(self, call: Callable[[], Any], *args: Any) -> Any:
        answer = call()
        self.taken[str(args[4])] = repr(answer)
        return answer

    def _counted(self, call: Callable[[], Any], *args: Any) -> Any:
        import torch

        ids = args[3]
        if str(len(ids)) not in self.experts and not torch.cuda.is_current_stream_capturing():
            self.experts[str(len(ids))] = int(ids.unique().numel())
        return call()


def one_start(argv: list[str], root: str | None, log: str, pipe: Connection) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.pop(VARIABLE, None)
    if root:
        os.environ[VARIABLE] = root
    import importlib

    began, choices = time.monotonic(), Choices()
    importlib.import_module("sglang.srt.model_executor.model_runner")
    choices.watch()
    runner = started(argv, 0, Counter())
    pipe.send({"seconds": round(time.monotonic() - began, 2), "kv_tokens": runner.max_total_num_tokens})
    from sglang.benchmark import one_batch

    bench = one_batch._TorchBenchRunner(runner)
    while (case := pipe.recv()) is not None:
        batch, length = case
        requests = one_batch.prepare_synthetic_inputs_for_latency_test(batch, length)
        row = one_batch.latency_test_run_once(
            "", bench, lambda *_: None, requests, batch, length, STEPS, 0, *NO_PROFILE
        )
        pipe.send([1e3 * row["prefill_latency"], 1e3 * row["median_decode_latency"]])
    pipe.send({"taken": choices.taken, "experts": choices.experts})
    os._exit(0)


def measured(pipes: dict[str, Connection]) -> dict[str, dict[str, Times]]:
    """By case and phase: each start's milliseconds, round by round. The first round is not kept."""
    found: dict[str, dict[str, Times]] = {}
    for case in CASES:
        times = {phase: {arm: [] for arm in pipes} for phase in ("prefill_ms", "decode_ms")}
        for number in range(ROUNDS + 1):
            for arm in list(pipes)[:: 1 if number % 2 else -1]:
                pipes[arm].send(case)
                for phase, took in zip(times, pipes[arm].recv(), strict=True):
                    if number:
                        times[phase][arm].append(round(took, 3))
        found["x".join(map(str, case))] = times
    return found


def told(times: dict[str, dict[str, Times]]) -> list[str]:
    """The medians, the root's over stock's, and the second start's over the first of each kind."""
    lines = []
    for case, phases in times.items():
        for phase, by_arm in phases.items():
            middle = {arm: median(rows) for arm, rows in by_arm.items()}
            shown = " ".join(f"{arm} {one:.3f}" for arm, one in middle.items())
            both = {
                kind: [one for arm, one in middle.items() if arm.startswith(kind)]
                for kind in ("stock", "root")
            }
            ratio = sum(both["root"]) / sum(both["stock"])
            itself = {kind: round(rows[-1] / rows[0], 3) for kind, rows in both.items()}
            lines.append(f"{case} {phase}: {shown}; root/stock {ratio:.3f}, itself {itself}")
    return lines


def main() -> None:
    out, root = Path(sys.argv[1]), sys.argv[2]
    argv = sys.argv[sys.argv.index("sglang.launch_server") + 1 :]
    spawn, pipes, ends = multiprocessing.get_context("spawn"), {}, {}
    out.parent.mkdir(parents=True, exist_ok=True)
    for arm in ARMS:
        pipes[arm], theirs = spawn.Pipe()
        log = str(out.with_suffix(f".{arm.replace(' ', '-')}.log"))
        own = [*argv, "--nccl-port", str(free_port())]
        given = (own, root if arm.startswith("root") else None, log, theirs)
        ends[arm] = spawn.Process(target=one_start, args=given, daemon=True)
        ends[arm].start()
        theirs.close()
    found: dict[str, Any] = {"argv": argv, "root": root, "starts": {}}
    for arm, pipe in pipes.items():
        found["starts"][arm] = pipe.recv()
        print(arm, found["starts"][arm], flush=True)
    found["times"] = measured(pipes)
    for arm, pipe in pipes.items():
        pipe.send(None)
        found["starts"][arm] |= pipe.recv()
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(*told(found["times"]), sep="\n", flush=True)
    for one in ends.values():
        one.join(10)
    os._exit(0)


if __name__ == "__main__":
    main()

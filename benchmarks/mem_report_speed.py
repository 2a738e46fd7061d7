"""How long a prediction takes and how much memory it needs, each as a process of its own.

PYTHONPATH=. python benchmarks/mem_report_speed.py
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.record import write_record

ROUNDS = 3
GLM = ("--model", "zai-org/GLM-5.1-FP8", "--tp", "8", "--gpu", "b200", "--mem-fraction-static", "0.9")
CASES = {
    "GLM-5.1-FP8 tp 8 dp 8, B200": (*GLM, "--dp", "8", "--enable-dp-attention"),
    "the same, and the LM head in the dummy run": (
        *GLM,
        "--dp",
        "8",
        "--enable-dp-attention",
        "--what-if",
        "lm-head-in-autotune",
    ),
    "GLM-5.1-FP8 tp 8, B200": GLM,
    "Qwen3-30B-A3B, H200": ("--model", "Qwen/Qwen3-30B-A3B", "--gpu", "h200"),
    "gpt-oss-120b, B200": ("--model", "openai/gpt-oss-120b", "--gpu", "b200"),
    "Llama-3.1-70B tp 8, H100": ("--model", "meta-llama/Llama-3.1-70B", "--tp", "8", "--gpu", "h100"),
    "Llama-3.1-70B, a sweep of 15": (
        *("--model", "meta-llama/Llama-3.1-70B", "--tp", "8", "--gpu", "h100"),
        *("--sweep", "mem-fraction-static=0.80:0.94:0.01"),
    ),
}


def measure(arguments: tuple[str, ...]) -> tuple[float, float, str]:
    """Seconds, MiB of the largest process, and the verdict."""
    command = [sys.executable, "-m", "sgl_tune.cli.app", "mem-report", *arguments, "--format", "json"]
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    answer = json.loads(child.stdout.read())
    _, _, usage = os.wait4(child.pid, 0)
    return time.perf_counter() - started, usage.ru_maxrss / 1024, answer["verdict"]


def main() -> None:
    rows: list[dict[str, Any]] = []
    print(f"{'':<46}{'seconds':>9}{'MiB':>6}")
    for name, arguments in CASES.items():
        rounds = [measure(arguments) for _ in range(ROUNDS)]
        seconds, mib = statistics.median(r[0] for r in rounds), max(r[1] for r in rounds)
        rows.append({"case": name, "arguments": arguments, "seconds": [r[0] for r in rounds], "mib": mib})
        print(f"{name:<46}{seconds:>9.1f}{mib:>6.0f}  {rounds[0][2]}")
    write_record("mem_report_speed", {"rounds": ROUNDS, "rows": rows})


if __name__ == "__main__":
    main()

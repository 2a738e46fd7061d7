"""What a command costs as a process of its own, and the record of a benchmark of commands. Without torch."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Cost:
    wall: float
    cpu: float
    megabytes: float


def timed(command: Sequence[str], good: Collection[int] = (0,)) -> Cost:
    # As after an installation: with compiled modules, which a shell may have forbidden to write.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT, env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - started
    if os.waitstatus_to_exitcode(status) not in good:
        raise SystemExit(f"{' '.join(command[:5])} ended with {os.waitstatus_to_exitcode(status)}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000)


def write_result(name: str, rounds: int, **found: Any) -> None:
    record = {
        "command": f"python benchmarks/{name}.py",
        "date": date.today().isoformat(),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.system()},
        "rounds": rounds,
        **found,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")

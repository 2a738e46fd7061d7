"""Many starts over the GPUs of one machine, each on as many as it needs: see `referee.py`.

python benchmarks/real_starts/drive.py OUT_FOLDER GPUS < commands.jsonl

Of those that CUDA_VISIBLE_DEVICES names, where it does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

REFEREE = Path(__file__).with_name("referee.py")


@dataclass
class Running:
    name: str
    gpus: list[str]
    process: subprocess.Popen[bytes]
    began: float


def main() -> None:
    out, count = Path(sys.argv[1]), int(sys.argv[2])
    waiting = [json.loads(line) for line in sys.stdin if line.strip()]
    running: list[Running] = []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    free = (named.split(",") if named else [str(i) for i in range(count)])[:count]
    port = int(os.environ.get("SGLANG_PORT", "21000"))
    while waiting or running:
        for job in [job for job in waiting if job["gpus"] <= len(free)][:1]:
            waiting.remove(job)
            taken, free = free[: job["gpus"]], free[job["gpus"] :]
            port += 300
            environment = {
                **os.environ,
                **job.get("env", {}),
                "CUDA_VISIBLE_DEVICES": ",".join(taken),
                "SGLANG_PORT": str(port),
            }
            command = [
                sys.executable,
                str(REFEREE),
                str(out / job["name"]),
                str(job["gpus"]),
                "--",
                *job["command"],
            ]
            command += ["--port", str(port), "--nccl-port", str(port + 100)]
            with (out / f"{job['name']}.out").open("wb") as log:
                process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            running.append(Running(job["name"], taken, process, time.monotonic()))
        for one in [one for one in running if one.process.poll() is not None]:
            running.remove(one)
            free = sorted(free + one.gpus)
            seconds = time.monotonic() - one.began
            print(f"{one.name}: {seconds:.0f} s, on {one.gpus}", flush=True)
        time.sleep(0.3)


if __name__ == "__main__":
    main()

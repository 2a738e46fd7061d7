"""Starts of a stock SGLang on this machine's GPUs, by the driver that also asks the ghost.

    python benchmarks/real_starts/measured.py SERVER_PYTHON OUT_FOLDER GPU < commands.jsonl

Each line names a start, its number of GPUs and its command, as `drive.py` reads them. OUT_FOLDER gets the
record of rank 0 of each start, NAME.json, and a folder NAME with the logs of all ranks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from benchmarks.real_starts.measuring import measure
from benchmarks.real_starts.referee import RANDOM_WEIGHTS

SAMPLING = RANDOM_WEIGHTS[RANDOM_WEIGHTS.index("--sampling-backend") :]
SECONDS = float(os.environ.get("REFEREE_SECONDS", "170"))


def main() -> None:
    python, out, gpu = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    jobs = [json.loads(line) for line in sys.stdin if line.strip()]
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")
    for one_each in (True, False):
        few = [job for job in jobs if (job["gpus"] == 1) is one_each]
        free: Queue[str] = Queue()
        for device in named if one_each else [",".join(named)]:
            free.put(device)
        with ThreadPoolExecutor(free.qsize()) as pool:
            started = [pool.submit(_start, job, python, out, gpu, free) for job in few]
            for one in started:
                print(one.result(), flush=True)


def _start(job: dict[str, object], python: Path, out: Path, gpu: str, free: Queue[str]) -> str:
    devices, began = free.get(), time.monotonic()
    try:
        name, ranks = str(job["name"]), int(str(job["gpus"]))
        argv = [*_flags(job["command"]), *SAMPLING]
        visible = {"CUDA_VISIBLE_DEVICES": devices}
        records = measure(python, argv, range(ranks), out.absolute() / name, gpu, SECONDS, visible)
        (out / f"{name}.json").write_text(records[0].to_json())
        ending = next((one.ending for one in records if one.ending.how != "ready"), records[0].ending)
        return f"{name}: {ending.how} {ending.phase or ''}, {time.monotonic() - began:.0f} s, on {devices}"
    finally:
        free.put(devices)


def _flags(command: object) -> Iterator[str]:
    words = [str(word) for word in command] if isinstance(command, list) else []
    yield from words[words.index("sglang.launch_server") + 1 :]


if __name__ == "__main__":
    main()

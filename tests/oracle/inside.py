"""The first step of every program that runs in the oracle's interpreter: one release on one kind of GPU."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.oracle.machine import GPUS, pretend
from tests.oracle.published import write_checkpoints
from tests.oracle.wheels import Wheel, interpreter, transformers_of

PROJECT = Path(__file__).parents[2]


def run_inside(
    program: str, wheel: Wheel, gpu: str, work: Path, lines: Iterable[str], deadline: float, *more: str
) -> Iterator[Any]:
    """Starts `program` for a release, and yields what it prints, a JSON value a line.

    It works in a folder where the published checkpoints stand at their paths.
    """
    home = work / "home"
    home.mkdir(parents=True, exist_ok=True)
    write_checkpoints(home)
    command = [str(interpreter(work)), "-m", f"tests.oracle.{program}"]
    command += [str(wheel.folder), str(transformers_of(wheel, work)), gpu, wheel.flashinfer, *more]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG_")}
    environment |= {"HOME": str(home), "PYTHONPATH": str(PROJECT)}
    environment |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=home, env=environment, input="".join(f"{line}\n" for line in lines),
        capture_output=True, text=True, timeout=deadline,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"SGLang {wheel.release}: {program} failed:\n{done.stderr[-3000:]}")
    for line in done.stdout.splitlines():
        yield json.loads(line)


def enter() -> str:
    """Makes this process the one that `run_inside` describes; answers FlashInfer's version."""
    wheel, transformers, gpu, flashinfer = sys.argv[1:5]
    sys.path[:0] = [wheel, transformers]
    pretend(GPUS[gpu])
    logging.disable(logging.CRITICAL)
    return flashinfer


def keep_output() -> Any:
    """Our answers go to the real standard output, what SGLang prints goes to nowhere."""
    real = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return real

"""What the driver says of its GPUs, through the program that comes with it."""

from __future__ import annotations

import shutil
import subprocess

_SECONDS = 20


def told_by_driver(fields: str, *which: str) -> str:
    """A line a GPU; empty where no driver answers."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    query = [program, f"--query-gpu={fields}", "--format=csv,noheader,nounits", *which]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""

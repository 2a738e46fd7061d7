"""What every benchmark writes: its numbers with the command, the machine and the day."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import date
from pathlib import Path
from typing import Any

import torch


def machine() -> dict[str, Any]:
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "gpus": gpus,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }


def write_record(name: str, record: dict[str, Any], out: str | None = None) -> Path:
    """To `out`, else into $OUT, else into benchmarks/results."""
    folder = Path(os.environ.get("OUT") or Path(__file__).parent / "results")
    path = Path(out) if out else folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {
        "command": " ".join(["python", *sys.argv]),
        "date": date.today().isoformat(),
        "machine": machine(),
    }
    path.write_text(json.dumps({**head, **record}, indent=1) + "\n")
    return path

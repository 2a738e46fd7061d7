"""What answers of mem-report cost: CPU seconds of the command and all its processes, and memory.

PYTHONPATH=. python benchmarks/mem_report_speed.py SERVER... [--case Llama]

Each server is a Python or a venv with SGLang. A first call builds what all calls share (libraries, bytecode,
Triton's kernels) and is not counted. Equal layers are folded unless said. `further` is a second
start in the same call, by its record: two calls differ by more than that where other work runs beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.record import write_record

CASES = {
    "Llama-3.1-8B, H200": ("--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "h200"),
    "GLM-5.1-FP8 tp 8 dp 8, B200": (
        *("--model", "zai-org/GLM-5.1-FP8", "--tp", "8", "--dp", "8", "--enable-dp-attention"),
        *("--gpu", "b200", "--mem-fraction-static", "0.9"),
    ),
}
WHAT_IF = ("--what-if", "mem-fraction-static=0.8")


class Caller:
    """Calls mem-report with a cache of its own."""

    def __init__(self, folder: Path, server: str) -> None:
        self._folder, self._server = folder, server
        self._records = folder / "sgl-tune" / "records"

    def cpu(self, *arguments: str) -> float:
        """Return the CPU seconds of one call."""
        command = [sys.executable, "-m", "sgl_tune.cli.app", "mem-report", *self._options(), *arguments]
        environment = {**os.environ, "XDG_CACHE_HOME": str(self._folder)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(self._folder / "own-bytecode")
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
        _, _, usage = os.wait4(child.pid, 0)
        return round(usage.ru_utime + usage.ru_stime, 2)

    def _options(self) -> list[str]:
        whom = ["--server", self._server]
        return whom if self._server == "core" else [*whom, "--record", str(self._folder / "record.json")]

    def cost(self) -> dict[str, Any]:
        """Return what the last recorded start says of itself."""
        record = json.loads((self._folder / "record.json").read_text())
        told = {"sglang": record["asked"]["versions"]["sglang"], "ending": record["ending"]["how"]}
        return {**told, "start": record["cost"]["cpu"], "mib": record["cost"]["rss"] >> 20}

    def starts(self) -> float:
        """Return the CPU seconds of all starts whose records are kept."""
        kept = self._records.glob("*.json")
        return round(sum(json.loads(file.read_text())["cost"]["cpu"] for file in kept), 2)

    def forget(self) -> None:
        shutil.rmtree(self._records, ignore_errors=True)


def measure(caller: Caller, arguments: tuple[str, ...]) -> dict[str, Any]:
    caller.cpu(*arguments)
    caller.forget()
    plain = caller.cpu(*arguments, "--no-fold")
    first = caller.cpu(*arguments)
    row = {"first, not folded": plain, "first": first, "kept": caller.cpu(*arguments), **caller.cost()}
    first_start = caller.starts()
    caller.cpu(*arguments, *WHAT_IF)
    row["further"] = round(caller.starts() - first_start, 2)
    caller.forget()
    return {**row, "fit": caller.cpu(*arguments, "--fit"), "load average": os.getloadavg()[1]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("servers", nargs="*")
    parser.add_argument("--case", default="", help="the beginning of a case's name")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, arguments in CASES.items():
        if not name.startswith(asked.case):
            continue
        for server in asked.servers:
            with tempfile.TemporaryDirectory(prefix="mem-report-speed-") as folder:
                row = measure(Caller(Path(folder), server), arguments)
            rows.append({"case": name, "arguments": arguments, **row})
            print(rows[-1], flush=True)
        with tempfile.TemporaryDirectory(prefix="mem-report-speed-") as folder:
            caller = Caller(Path(folder), "core")
            rows.append({"case": name, "sglang": "the runtime core", "first": caller.cpu(*arguments)})
    write_record("mem_report_speed", {"rows": rows})


if __name__ == "__main__":
    main()

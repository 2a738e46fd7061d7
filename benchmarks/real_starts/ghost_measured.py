"""What a round took on real GPUs, beside what the ghost said of it: results/ghost_measured_ROUND.json.

PYTHONPATH=. python benchmarks/real_starts/ghost_measured.py commands ROUND > commands.jsonl
PYTHONPATH=. python benchmarks/real_starts/measured.py SERVER_PYTHON OUT h200 < commands.jsonl
PYTHONPATH=. python benchmarks/real_starts/ghost_measured.py kept ROUND OUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.real_starts.ghost_round import SAMPLING, below_root, commands
from benchmarks.record import write_record
from runtime.record.record import Record


def main() -> None:
    job, of_round, *rest = sys.argv[1:]
    starts = commands(of_round)
    if job == "commands":
        for name, gpus, argv in starts:
            command = ["python", "-m", "sglang.launch_server", *below_root(argv)[: -len(SAMPLING)]]
            print(json.dumps({"name": name, "gpus": gpus, "command": command}))
        return
    files = {name: Path(rest[0]) / f"{name}.json" for name, _, _ in starts}
    kept = [_told(name, Record.from_json(file.read_text())) for name, file in files.items() if file.exists()]
    write_record(f"ghost_measured_{of_round}", {"starts": kept})


def _told(name: str, record: Record) -> dict[str, Any]:
    return {
        "name": name,
        "driver_ending": record.ending.how,
        "died_in": record.ending.phase,
        "error": (record.ending.text or "")[:400] or None,
        "kv_tokens": {"driver": record.sizes.kv_tokens} if record.sizes else None,
        "driver": {one.name: {"peak": one.peak, "outside_torch": one.outside} for one in record.phases},
    }


if __name__ == "__main__":
    main()

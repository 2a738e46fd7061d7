"""What a token costs models with windows, by the configurator of SGLang's two pools: recorded for the tests.

python -m tests.oracle.cells --model google/gemma-4-26B-A4B-it [--tp 1,2,4,8,16] [--release 0.5.23]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.memory.checkpoints import DATA, checkpoints
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of

RECORDED = DATA / "sglang_cells.json"


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.cells", description=(__doc__ or "")[:60])
    options.add_argument("--model", action="append", required=True)
    options.add_argument("--tp", default="1,2,4,8,16")
    options.add_argument("--release", default="0.5.23")
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    asked = options.parse_args()
    configs = {one.name: one.config for one in checkpoints()}
    places = [(name, int(tp)) for name in asked.model for tp in asked.tp.split(",")]
    lines = [json.dumps({"config": configs[name], "tp": tp}) for name, tp in places]
    wheel, work = wheel_of(asked.release, asked.work.absolute()), asked.work.absolute()
    found = json.loads(RECORDED.read_text()) if RECORDED.is_file() else {}
    for (name, tp), cells in zip(
        places, run_inside("read_cells", wheel, "H200", work, lines, 600), strict=True
    ):
        found.setdefault(name, {})[str(tp)] = cells
    rows = (f" {json.dumps(name)}: {json.dumps(told)}" for name, told in found.items())
    RECORDED.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()

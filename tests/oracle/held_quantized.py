"""What SGLang's own classes hold of `tests/memory/quantized.py`, or that they end: recorded for the tests.

python -m tests.oracle.held_quantized --model LiquidAI/LFM2-1.2B [--places 1,2,8] [--gpu B200]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tests.memory.quantized import FIRST, RECORDED, SECTIONS, config_of
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m tests.oracle.held_quantized", description=(__doc__ or "")[:60]
    )
    options.add_argument("--model", action="append", choices=FIRST)
    options.add_argument("--places", default="1,2,8", help="tp: of each, its last rank")
    options.add_argument("--release", default="0.5.23")
    options.add_argument("--gpu", default="H200", help="all of them hold the same: nothing may change")
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    asked = options.parse_args()
    work = asked.work.absolute()
    places = [int(one) for one in asked.places.split(",")]
    cases = [(name, of, tp) for name in asked.model or FIRST for of in SECTIONS for tp in places]
    lines = [json.dumps(_case(name, of, tp)) for name, of, tp in cases]
    held = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    answers = run_inside("read_held", wheel_of(asked.release, work), asked.gpu, work, lines, 900, "may-end")
    for (name, of, tp), answer in zip(cases, answers, strict=True):
        held.setdefault(name, {}).setdefault(of, {})[str(tp)] = answer
    RECORDED.write_text("{\n" + ",\n".join(_rows(name, told) for name, told in held.items()) + "\n}\n")


def _case(name: str, of: str, tp: int) -> dict[str, Any]:
    case = {"config": config_of(name, of), "quantized": True, "tp": tp, "rank": tp - 1}
    return {**case, "argv": ["--disable-radix-cache"]}  # whose pages some models have no number for


def _rows(name: str, told: dict[str, Any]) -> str:
    rows = (f"  {json.dumps(of)}: {json.dumps(one)}" for of, one in told.items())
    return f" {json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n }"


if __name__ == "__main__":
    main()

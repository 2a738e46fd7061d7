"""Bytes that a rank holds of published checkpoints, by SGLang's own model classes: recorded for the tests.

python -m tests.oracle.held --model CohereLabs/North-Mini-Code-1.0 [--places 1,2,8,8/8/1] [--release 0.5.23]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tests.memory.checkpoints import DATA, checkpoints, params
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of

RECORDED = DATA / "sglang_weights.json"


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.held", description=(__doc__ or "")[:60])
    options.add_argument("--model", action="append", required=True)
    options.add_argument("--places", default="1,2,8", help="tp, or tp/ep/dp: of each, its last rank")
    options.add_argument("--release", default="0.5.23")
    options.add_argument("--server", default="", help="what its server is told beside, without which it ends")
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    asked = options.parse_args()
    configs = {one.name: one.config for one in checkpoints()}
    places = [(name, place) for name in asked.model for place in asked.places.split(",")]
    quantized = {name for name in asked.model if "quantization_config" in configs[name]}
    lines = [
        json.dumps(
            {
                "config": configs[name],
                "params": params().get(name),
                "named": f"{name.rpartition('/')[2]}-",
                "quantized": name in quantized,
                "argv": asked.server.split(),
                **_place(place),
            }
        )
        for name, place in places
    ]
    wheel, work = wheel_of(asked.release, asked.work.absolute()), asked.work.absolute()
    held = json.loads(RECORDED.read_text())
    answers = run_inside("read_held", wheel, "H200", work, lines, deadline=600)
    for (name, place), answer in zip(places, answers, strict=True):
        held.setdefault(name, {})[place] = answer
    RECORDED.write_text(_one_a_line(held))


def _place(told: str) -> dict[str, Any]:
    """Beside other ranks' experts or requests, a shared expert lies as a loader decides."""
    tp, ep, dp = sizes_of(told)
    return {"tp": tp, "ep": ep, "dp": dp, "rank": tp - 1, "fused": "/" in told}


def sizes_of(place: str) -> tuple[int, ...]:
    """tp, ep, dp."""
    return (*map(int, place.split("/")), 1, 1)[:3]


def _one_a_line(held: dict[str, Any]) -> str:
    rows = (f" {json.dumps(name)}: {json.dumps(told)}" for name, told in held.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    main()

"""What tokens cost GLM-5.3 Flash, and what their pools hold, by SGLang's own classes: recorded for the tests.

python -m tests.oracle.pooled
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

from tests.memory.checkpoints import DATA, published_config
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of

RECORDED, MODEL = DATA / "sglang_pooled.json", "a/glm-5.3-flash-as-its-classes-have-it"
_STAGES, _POOLS, _KINDS = ((0, 45), (0, 5), (23, 45)), (16, 4), ("auto", "fp8_e4m3", "bfloat16")


def cases() -> list[dict[str, Any]]:
    """Of pages of 64 pools: an interval between kept states that these divide."""
    found = itertools.product(("H200", "B200"), _KINDS, _POOLS, _STAGES)
    named = (dict(zip(("gpu", "kv", "pool", "stage"), one, strict=True)) for one in found)
    return [{**one, "tokens": 192 * one["pool"] * (1 + i), "requests": 7 * i} for i, one in enumerate(named)]


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.pooled", description=(__doc__ or "")[:60])
    options.add_argument("--release", default="0.5.23")
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    asked = options.parse_args()
    config = published_config(MODEL)
    wheel, work = wheel_of(asked.release, asked.work.absolute()), asked.work.absolute()
    rows = []
    for gpu in ("H200", "B200"):
        own = [case for case in cases() if case["gpu"] == gpu]
        lines = [json.dumps({**case, **_server(config, case)}) for case in own]
        answers = run_inside("read_pooled", wheel, gpu, work, lines, 600)
        rows += [{**case, "answer": answer} for case, answer in zip(own, answers, strict=True)]
    RECORDED.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n")


def _server(config: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    text = {**config["text_config"], "index_kpool": case["pool"]}
    argv = ["--kv-cache-dtype", case["kv"], "--mamba-track-interval", "1024"]
    return {"config": {**config, "text_config": text}, "argv": argv, "tp": 8}


if __name__ == "__main__":
    main()

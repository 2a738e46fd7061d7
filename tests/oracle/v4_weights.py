"""Bytes that a rank holds of DeepSeek-V4 before its weights are laid out anew: SGLang's own class, recorded.

python -m tests.oracle.v4_weights [--release 0.5.23]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tests.oracle.deepseek_v4 import FLASH, FLASH_FP8, PRO
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of

RECORDED = Path(__file__).parent / "recorded/v4_weights.json"
CONFIGS = {"flash": FLASH, "pro": PRO, "flash in fp8": FLASH_FP8}
_BACKENDS = {"flash in fp8": "triton"}
# GPUs, sizes, and tp, ep and the groups of DP attention; of each, its last rank.
CASES = [
    {"gpu": gpu, "config": config, "tp": tp, "ep": ep, "dp": dp}
    for gpu in ("H200", "B200")
    for config, tp, ep, dp in (
        *(("flash", tp, 1, 1) for tp in (1, 2, 4, 8)),
        *(("flash", 8, 1, 2), ("flash", 8, 8, 8), ("pro", 8, 1, 1), ("pro", 8, 8, 8)),
        ("flash in fp8", 8, 1, 1),
    )
]


def backend_of(case: dict[str, Any]) -> str:
    return _BACKENDS.get(case["config"], "flashinfer_mxfp4")


def read() -> list[tuple[dict[str, Any], int]]:
    return [(one["case"], one["bytes"]) for one in json.loads(RECORDED.read_text())]


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.v4_weights")
    options.add_argument("--release", default="0.5.23")
    release = options.parse_args().release
    found = []
    for gpu in dict.fromkeys(case["gpu"] for case in CASES):
        cases = [case for case in CASES if case["gpu"] == gpu]
        lines = [json.dumps(_asked(case)) for case in cases]
        answers = run_inside("read_held", wheel_of(release, WORK), gpu, WORK, lines, deadline=1200)
        found += [{"case": case, "bytes": held} for case, (held, _) in zip(cases, answers, strict=True)]
    RECORDED.write_text("[\n" + ",\n".join(f" {json.dumps(one)}" for one in found) + "\n]\n")


def _asked(case: dict[str, Any]) -> dict[str, Any]:
    argv = ["--moe-runner-backend", backend_of(case)]
    sizes = {**case, "config": CONFIGS[case["config"]], "rank": case["tp"] - 1}
    return {**sizes, "quantized": True, "argv": argv}


if __name__ == "__main__":
    main()

"""Bytes that a rank holds of DeepSeek-V4 before its weights are laid out anew: SGLang's own class, recorded.

python -m tests.oracle.v4_weights [--release 0.5.23] [--each]

With --each, the first layers of it by the class of each release.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from runtime.server.releases import RELEASES
from tests.oracle.deepseek_v4 import FLASH, FLASH_FP8, PRO
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of

RECORDED = Path(__file__).parent / "recorded/v4_weights.json"
OF_EACH = Path(__file__).parent / "recorded/v4_weights_of_each.json"
FIRST_LAYERS = 8
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


def read_each() -> list[dict[str, Any]]:
    return list(json.loads(OF_EACH.read_text()))


def of_each() -> list[dict[str, Any]]:
    """The last of 8 ranks, by each release on two GPUs."""
    return [
        {"release": row.version, "gpu": gpu, "config": config, "tp": 8, "ep": 1, "dp": 1}
        for row in RELEASES
        for gpu in ("H200", "B200")
        for config in ("flash", "flash in fp8")
    ]


def _record_each() -> None:
    found = []
    for release, gpu in dict.fromkeys((case["release"], case["gpu"]) for case in of_each()):
        cases = [case for case in of_each() if (case["release"], case["gpu"]) == (release, gpu)]
        lines = [json.dumps(_first_layers(case)) for case in cases]
        answers = run_inside("read_held", wheel_of(release, WORK), gpu, WORK, lines, deadline=600)
        found += [{**case, "bytes": held} for case, (held, _) in zip(cases, answers, strict=True)]
    OF_EACH.write_text("[\n" + ",\n".join(f" {json.dumps(one)}" for one in found) + "\n]\n")


def _first_layers(case: dict[str, Any]) -> dict[str, Any]:
    """As its loader has it: shared experts are not run as routed ones, and headers say which are in fp4."""
    asked = _asked(case)
    in_fp4 = "0" if case["config"] == "flash in fp8" else "1"
    return {
        **asked,
        "config": {**asked["config"], "num_hidden_layers": FIRST_LAYERS},
        "argv": [*asked["argv"], "--disable-shared-experts-fusion"],
        "environment": {"SGLANG_DSV4_FP4_EXPERTS": in_fp4},
    }


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.v4_weights")
    options.add_argument("--release", default="0.5.23")
    options.add_argument("--each", action="store_true", help="the first layers, by each release")
    asked = options.parse_args()
    release = asked.release
    if asked.each:
        _record_each()
        return
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

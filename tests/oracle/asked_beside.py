"""Bytes that a rank holds beside copies of experts, or of adapters, by SGLang's own classes: recorded.

python -m tests.oracle.asked_beside
"""

from __future__ import annotations

import argparse
import json
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.memory.asked_beside import RECORDED, Case, cases, deployed, held
from tests.memory.checkpoints import checkpoints
from tests.oracle.held import sizes_of
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.asked_beside", description=__doc__)
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    work = options.parse_args().work.absolute()
    configs = {one.name: one.config for one in checkpoints()}
    known = sorted((one for one in cases() if one.model in configs), key=lambda one: one.release)
    answers: dict[str, Any] = {}
    for release, some in groupby(known, key=lambda one: one.release):
        these = list(some)
        lines = [json.dumps(_line(one, configs[one.model])) for one in these]
        found = run_inside("read_held", wheel_of(release, work), "H200", work, lines, 1800, "may-end")
        for one, theirs in zip(these, found, strict=True):
            answers[one.key] = theirs
            deployment = deployed(one)
            assert deployment is not None
            if not isinstance(theirs, list) or theirs[0] != held(one, deployment):
                print(f"{one.key}: ours {held(one, deployment)}, SGLang's {theirs}")
    rows = ",\n".join(f" {json.dumps(key)}: {json.dumps(answers[key])}" for key in sorted(answers))
    RECORDED.write_text(f"{{\n{rows}\n}}\n")


def _line(one: Case, config: dict[str, Any]) -> dict[str, Any]:
    tp, ep, dp = sizes_of(one.place)
    told = {"config": config, "tp": tp, "ep": ep, "dp": dp, "rank": tp - 1, "fused": "/" in one.place}
    adapters = {"slots": 4, "rank": 32, "modules": one.modules} if one.modules else None
    if adapters and one.modules == ["all"]:
        adapters["modules"] = "all"
    quantized = "quantization_config" in config
    return {
        **told,
        "quantized": quantized,
        "argv": one.server.split(),
        "adapters": adapters,
        "tables": one.is_of_tables,
    }


if __name__ == "__main__":
    main()

"""What SGLang's own offloader leaves of published checkpoints on a rank's GPU: recorded.

python -m tests.oracle.offloaded
"""

from __future__ import annotations

import argparse
import json
from itertools import groupby
from pathlib import Path
from typing import Any

from runtime.server.units import GIB
from tests.memory.checkpoints import checkpoints
from tests.memory.offloaded import RECORDED, Case, cases, deployed, left, told
from tests.oracle.held import sizes_of
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.offloaded", description=__doc__)
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    work = options.parse_args().work.absolute()
    configs = {one.name: one.config for one in checkpoints()}
    known = sorted((one for one in cases() if one.model in configs), key=lambda one: one.release)
    answers: dict[str, Any] = {}
    for release, some in groupby(known, key=lambda one: one.release):
        these = list(some)
        lines = [json.dumps(_line(one, configs[one.model])) for one in these]
        found = run_inside("read_offloaded", wheel_of(release, work), "H200", work, lines, 1800)
        for one, theirs in zip(these, found, strict=True):
            gone = [[size for _, size in layer] for layer in theirs["layers"] if layer]
            answers[one.key], ours = told(gone, theirs["held"]), left(one, deployed(one))
            if ours != answers[one.key] or theirs["aliases"]:
                print(f"{one.key}: ours {ours}, SGLang's {answers[one.key]} {theirs['aliases']}")
    rows = ",\n".join(f" {json.dumps(key)}: {json.dumps(answers[key])}" for key in sorted(answers))
    RECORDED.write_text(f"{{\n{rows}\n}}\n")


def _line(one: Case, config: dict[str, Any]) -> dict[str, Any]:
    tp, ep, dp = sizes_of(one.place)
    at, of = one.stage
    place = {"tp": tp, "ep": ep, "dp": dp, "rank": tp - 1, "fused": "/" in one.place, "stage": [of, at]}
    return {"config": config, **place, "argv": one.argv, "budget": one.gigabytes * GIB}


if __name__ == "__main__":
    main()

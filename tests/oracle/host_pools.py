"""What published checkpoints keep in the host's memory, by SGLang's own classes: recorded.

python -m tests.oracle.host_pools
"""

from __future__ import annotations

import argparse
import json
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.memory.checkpoints import checkpoints
from tests.memory.host_pools import RECORDED, REST, TOLD, Case, cases, deployed, kept, place_of
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.host_pools", description=__doc__)
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    work = options.parse_args().work.absolute()
    configs = {one.name: one.config for one in checkpoints()}
    answers: dict[str, Any] = {}
    for release, some in groupby(sorted(cases(), key=lambda one: one.release), key=lambda one: one.release):
        these = list(some)
        lines = [json.dumps(_line(one, configs[one.model])) for one in these]
        found = run_inside("read_host_pools", wheel_of(release, work), "H200", work, lines, 1800)
        for one, theirs in zip(these, found, strict=True):
            told = theirs["refused"] if "refused" in theirs else {name: theirs[name] for name in TOLD}
            answers[one.key], ours = told, kept(one, deployed(one))
            if ours != told and not (isinstance(ours, str) and isinstance(told, str)):
                print(f"{one.key}: ours {ours}, SGLang's {theirs}")
    rows = ",\n".join(f" {json.dumps(key)}: {json.dumps(answers[key])}" for key in sorted(answers))
    RECORDED.write_text(f"{{\n{rows}\n}}\n")


def _line(one: Case, config: dict[str, Any]) -> dict[str, Any]:
    stage, dtype = place_of(one, deployed(one))
    return {"config": config, "argv": one.argv, "rest": REST, "stage": stage, "dtype": dtype}


if __name__ == "__main__":
    main()

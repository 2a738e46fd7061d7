"""Bytes that a rank of each published checkpoint's server holds, by SGLang's own model classes: recorded.

python -m tests.oracle.held_servers [--gpu H200] [--model Qwen/Qwen3-32B]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from runtime.server.errors import ConfigError
from sgl_tune.errors import UsageError
from tests.memory.checkpoints import params
from tests.memory.served import ARCHES, RECORDED, RELEASE, cases, deployed, held, is_served
from tests.oracle.held import sizes_of
from tests.oracle.inside import run_inside
from tests.oracle.published import Published
from tests.oracle.wheels import WORK, wheel_of


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.held_servers", description=__doc__)
    options.add_argument("--gpu", choices=ARCHES, action="append")
    options.add_argument("--model", action="append")
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    asked = options.parse_args()
    found: dict[str, Any] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    work = asked.work.absolute()
    for gpu in asked.gpu or ARCHES:
        ours = {(one.name, place): size for one, place, size in _ours(gpu, asked.model)}
        lines = [
            _line(one, place) for one, kind, place in cases() if kind == gpu and (one.name, place) in ours
        ]
        answers = run_inside("read_held", wheel_of(RELEASE, work), gpu, work, lines, 3600, "may-end")
        for (name, place), theirs in zip(ours, answers, strict=True):
            if ours[name, place] != theirs:
                print(f"{gpu} {name} {place}: ours {ours[name, place]}, SGLang's {theirs}")
            if isinstance(theirs, list):
                found.setdefault(name, {}).setdefault(gpu, {})[place] = theirs
    rows = ",\n".join(f" {json.dumps(name)}: {json.dumps(told)}" for name, told in found.items())
    RECORDED.write_text(f"{{\n{rows}\n}}\n")


def _ours(gpu: str, names: list[str] | None) -> Any:
    for one, kind, place in cases():
        if kind != gpu or (names and one.name not in names):
            continue
        try:
            deployment = deployed(one, gpu, place)
            if is_served(deployment):
                yield one, place, held(deployment)
        except (ConfigError, UsageError) as error:
            print(f"{gpu} {one.name} {place}: {error}")


def _line(one: Published, place: str) -> str:
    tp, ep, dp = sizes_of(place)
    told = {"config": one.config, "params": params().get(one.name), "modelopt": one.modelopt_file}
    case = {"named": f"{one.name.rpartition('/')[2]}-", "quantized": True, "fused": True, "rank": tp - 1}
    return json.dumps({**told, **case, "tp": tp, "ep": ep, "dp": dp, "argv": []})


if __name__ == "__main__":
    main()

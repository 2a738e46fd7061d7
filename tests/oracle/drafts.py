"""Asks SGLang's own classes again how large the drafts of tests/memory/data/drafts.json are.

python -m tests.oracle.drafts [--record]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of

RECORDED = Path(__file__).parents[1] / "memory/data/drafts.json"
RELEASE = "0.5.23"


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.drafts")
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    options.add_argument("--record", action="store_true")
    asked = options.parse_args()
    recorded, work = json.loads(RECORDED.read_text()), asked.work.absolute()
    cases = [(draft, ranks) for draft in recorded["drafts"] for ranks in draft["bytes"]]
    lines = [json.dumps({"config": config_of(recorded, draft), "tp": int(ranks)}) for draft, ranks in cases]
    answers = [*run_inside("read_drafts", wheel_of(RELEASE, work), "H200", work, lines, 600)]
    otherwise = [
        case for case, answer in zip(cases, answers, strict=True) if case[0]["bytes"][case[1]] != answer
    ]
    print(f"{len(cases)} ranks, {len(otherwise)} otherwise than recorded")
    if asked.record:
        for (draft, ranks), answer in zip(cases, answers, strict=True):
            draft["bytes"][ranks] = answer
        RECORDED.write_text(_text(recorded))


def config_of(recorded: dict[str, Any], draft: dict[str, Any]) -> dict[str, Any]:
    return {**recorded["all"], **draft["config"]}


def _text(recorded: dict[str, Any]) -> str:
    """A draft a line."""
    heads = ",\n".join(f' "{name}": {json.dumps(recorded[name])}' for name in ("source", "all"))
    drafts = ",\n".join(f"  {json.dumps(draft)}" for draft in recorded["drafts"])
    return f'{{\n{heads},\n "drafts": [\n{drafts}\n ]\n}}\n'


if __name__ == "__main__":
    main()

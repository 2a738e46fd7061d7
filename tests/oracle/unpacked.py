"""What SGLang's classes of our small models unpack, under compressed-tensors: recorded for the tests.

python -m tests.oracle.unpacked [--release 0.5.23]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tests.memory.quantized import SECTIONS
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of
from tests.runtime.families import TINY, make_reference
from tests.runtime.families.reference import served_json

RECORDED = Path(__file__).parent / "recorded/unpacked.json"


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m tests.oracle.unpacked", description=(__doc__ or "")[:60]
    )
    options.add_argument("--release", default="0.5.23")
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    asked = options.parse_args()
    files = [_file(family) for family in TINY]
    lines = [json.dumps({"config": told, "quantized": True, "tp": 1, "rank": 0}) for told in files]
    wheel, work = wheel_of(asked.release, asked.work.absolute()), asked.work.absolute()
    answers = run_inside("read_unpacked", wheel, "H200", work, lines, 1800, "may-end")
    found = {
        told["architectures"][0]: answer
        for told, answer in zip(files, answers, strict=True)
        if told["architectures"] and not isinstance(answer, str)
    }
    rows = (f" {json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
    RECORDED.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def _file(family: str) -> dict[str, Any]:
    told = served_json(make_reference(family))
    return {**told, "dtype": "bfloat16", "quantization_config": SECTIONS["fp8 a row"]}


if __name__ == "__main__":
    main()

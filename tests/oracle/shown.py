"""Asks every release which of its classes show a draft what their layers make of a token, and since when.

python -m tests.oracle.shown [--record]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from runtime.server.releases import RELEASES
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of

RECORDED = Path(__file__).parent / "recorded/shown_layers.json"
Since = dict[str, str]


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.shown")
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    options.add_argument("--record", action="store_true")
    asked = options.parse_args()
    found = _since(asked.work.absolute())
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    print(f"{len(found)} classes, {sum(recorded.get(one) != found[one] for one in found)} not as recorded")
    if asked.record:
        lines = (f" {json.dumps(one)}: {json.dumps(found[one])}" for one in sorted(found))
        RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _since(work: Path) -> dict[str, Since]:
    """Of each class: since when it was asked, and since when it shows layers, by the algorithm."""
    found: dict[str, Since] = {}
    for release in (one.version for one in RELEASES):
        (classes,) = run_inside("read_shown", wheel_of(release, work), "H200", work, (), 600)
        for name, algorithms in classes.items():
            since = found.setdefault(name, {"asked": release})
            assert not since.keys() - {"asked", *algorithms}, f"{name} of SGLang {release} shows no more"
            for algorithm in algorithms:
                since.setdefault(algorithm, release)
    return found


if __name__ == "__main__":
    main()

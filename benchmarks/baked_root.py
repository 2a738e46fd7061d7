"""Starts on a root that was compiled without a GPU, beside starts on a root that a cold start here filled.

    PYTHONPATH=. python benchmarks/baked_root.py --name baked_root --root ROOT --turns 3 -- COMMAND

COMMAND starts a server. The first start is cold and fills a root of its own; the starts on both roots are
made in turns. The tactics of the cold start are copied to ROOT if it has none, because only a GPU tunes. A
last start on ROOT under `strace`, untimed, counts the compilers that it runs.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.moved_root import TACTICS, listing
from benchmarks.record import write_record
from benchmarks.started import Starter, programs
from sgl_tune.start_report.compilers import NAMES


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--ready", default="^LOADED")
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--release", default="0.5.17")
    options.add_argument("--root", type=Path, required=True)
    options.add_argument("--name", default="baked_root")
    options.add_argument("command", nargs="+")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="baked-root.") as folder:
        found = _measured(asked, Path(folder))
    write_record(asked.name, found)
    print(json.dumps(found, indent=1))


def _measured(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    starter, made, root = Starter(asked.release, asked.ready), folder / "made", asked.root
    made.mkdir()

    def start(name: str, where: Path) -> float:
        report = starter.start(folder / name, where, asked.command, None)
        seconds = round(float(report["wall_seconds"]), 2)
        print(name, seconds, report["ready_by"], report["compiled"], flush=True)
        return seconds

    cold = start("cold", made)
    if (made / TACTICS).exists() and not (root / TACTICS).exists():
        shutil.copytree(made / TACTICS, root / TACTICS)
    before = listing(root)
    baked = [start("first-baked", root)]
    new = sorted(set(listing(root).items()) - set(before.items()))
    own = []
    for turn in range(asked.turns):
        own.append(start(f"own-{turn}", made))
        baked.append(start(f"baked-{turn}", root))
    started = programs(starter, root, folder / "trace", asked.command)
    return {
        "seconds": {"cold": cold, "its own root": own, "the baked root": baked},
        "baked of own, medians": round(median(baked[1:]) / median(own), 3),
        "written by the first start on the baked root": [name for (name, _) in new][:100],
        "compilers started": {one: count for one, count in started.items() if one.split()[0] in NAMES},
        "programs started": started,
        "ready by": _ready(folder),
        "own root": _by_store(made),
        "baked root": _by_store(root),
    }


def _ready(folder: Path) -> dict[str, str]:
    found = {}
    for log in sorted(folder.glob("*.log")):
        line = re.search(r"^LOADED.*$", log.read_text(errors="replace"), re.MULTILINE)
        found[log.stem] = line[0] if line else ""
    return found


def _by_store(root: Path) -> dict[str, list[int]]:
    """Return the files and bytes of each folder of the root."""
    found: dict[str, list[int]] = {}
    for name, (size, _) in listing(root).items():
        counted = found.setdefault(name.partition("/")[0], [0, 0])
        counted[0] += 1
        counted[1] += size
    return found


if __name__ == "__main__":
    main()

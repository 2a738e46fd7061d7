"""A start with all that it compiles in place, and with that root moved: read-only, times lost, another user.

    PYTHONPATH=. python benchmarks/moved_root.py --ready '^LOADED' --turns 5 -- COMMAND THAT STARTS A SERVER

Starts COMMAND (a) with an empty root, (b) with its tactics alone, (c) with all, (d) with all of it moved;
(c) and (d) in turns. --without-b leaves (b) out. A last start under `strace`, untimed, counts the programs
that (d) starts. It writes moved_root.json. Nobody's user starts (d), and the root is root's, where this is
run by root.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import started
from benchmarks.record import write_record
from benchmarks.started import PROGRAM, Starter, out_of_reach
from sgl_tune.start_report.compilers import NAMES

TACTICS = "flashinfer/autotune"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--ready", default="^LOADED")
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--without-b", action="store_true")
    options.add_argument("--release", default="0.5.17")
    options.add_argument("--name", default="moved_root")
    options.add_argument("command", nargs="+")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="moved-root.") as folder:
        Path(folder).chmod(0o755)
        found = _Starts(asked, Path(folder)).all()
    write_record(asked.name, found)
    print(json.dumps({name: value for name, value in found.items() if name != "reports"}, indent=1))


class _Starts:
    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self.asked, self.folder = asked, folder
        self.made, self.moved, self.scratch = (
            folder / "made",
            folder / "elsewhere" / "moved",
            folder / "scratch",
        )
        self.starter = Starter(asked.release, asked.ready)
        self.reports: dict[str, dict[str, Any]] = {}

    def all(self) -> dict[str, Any]:
        self.made.mkdir()
        cold = self._start("a", self.made)
        if (self.made / TACTICS).exists() and not self.asked.without_b:
            tactics = self.folder / "tactics"
            shutil.copytree(self.made / TACTICS, tactics / TACTICS)
            self._start("b", tactics)
        self._start("c warm-up", self.made)
        self._move()
        warm, moved = [], []
        before = listing(self.moved)
        for turn in range(self.asked.turns):
            warm.append(self._start(f"c {turn}", self.made))
            moved.append(self._start(f"d {turn}", self.moved, read_only=True))
        programs = started.programs(
            self.starter, self.moved, self.scratch / "trace", self.asked.command, self.scratch
        )
        spared = cold - median(warm)
        return {
            "seconds": {
                "a": cold,
                "b": self._seconds("b") if "b" in self.reports else None,
                "c": warm,
                "d": moved,
            },
            "d of c, medians": round(median(moved) / median(warm), 3),
            "a: attributed": round(1 - self.reports["a"]["unexplained_seconds"] / cold, 4),
            "a: predicted saving": self.reports["a"]["saves_seconds"],
            "a: saved by c": round(spared, 2),
            "a: prediction of what was saved": round(self.reports["a"]["saves_seconds"] / spared, 3),
            "root": {"bytes": sum(size for size, _ in before.values()), "files": len(before)},
            "d: written into the root": sorted(set(listing(self.moved).items()) - set(before.items()))[:20],
            "d: compiled, by its reports": self._compiled("d"),
            "d: programs started": programs,
            "d: compilers started": {
                told: count for told, count in programs.items() if told.split()[0] in NAMES
            },
            "reports": self.reports,
        }

    def _compiled(self, kind: str) -> list[str]:
        told = [report["compiled"] for name, report in self.reports.items() if name.startswith(kind)]
        return sorted({module for modules in told for module in modules})

    def _move(self) -> None:
        """Copied without times, mended, and out of the server's reach."""
        self.moved.parent.mkdir()
        shutil.copytree(self.made, self.moved, copy_function=shutil.copyfile)
        for path in (self.moved, *self.moved.rglob("*")):
            os.utime(path, (10**9, 10**9))
        told = subprocess.run(
            [*PROGRAM, "relocate", str(self.moved)], capture_output=True, text=True, check=True
        )
        print(told.stdout, flush=True)
        out_of_reach(self.moved, self.scratch)

    def _start(self, name: str, root: Path, read_only: bool = False) -> float:
        place = self.folder / name.replace(" ", "-")
        report = self.starter.start(place, root, self.asked.command, self.scratch if read_only else None)
        self.reports[name] = report
        seconds = self._seconds(name)
        print(name, seconds, flush=True)
        return seconds

    def _seconds(self, name: str) -> float:
        return round(float(self.reports[name]["wall_seconds"]), 2)


def listing(root: Path) -> dict[str, tuple[int, int]]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


if __name__ == "__main__":
    main()

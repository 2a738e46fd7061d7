"""A start with all that it compiles in place, and with that root moved: read-only, times lost, another user.

    PYTHONPATH=. python benchmarks/moved_root.py --ready '^LOADED' --turns 5 -- COMMAND THAT STARTS A SERVER

Starts COMMAND (a) with an empty root, (b) with its tactics alone, (c) with all, (d) with all of it moved;
(c) and (d) in turns. A last start under `strace`, untimed, counts the programs that (d) starts. It writes
moved_root.json. Nobody's user starts (d), and the root is root's, where this is run by root.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.record import write_record
from sgl_tune.start_report.compilers import NAMES

PROGRAM = [sys.executable, "-m", "sgl_tune.cli.app"]
TACTICS = "flashinfer/autotune"
NOBODY = 65534
LIMIT_SECONDS = 400


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--ready", default="^LOADED")
    options.add_argument("--turns", type=int, default=5)
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
        self.reports: dict[str, dict[str, Any]] = {}

    def all(self) -> dict[str, Any]:
        self.made.mkdir()
        cold = self._start("a", self.made)
        if (self.made / TACTICS).exists():
            tactics = self.folder / "tactics"
            shutil.copytree(self.made / TACTICS, tactics / TACTICS)
            self._start("b", tactics)
        self._start("c warm-up", self.made)
        self._move()
        warm, moved = [], []
        before = _listing(self.moved)
        for turn in range(self.asked.turns):
            warm.append(self._start(f"c {turn}", self.made))
            moved.append(self._start(f"d {turn}", self.moved, read_only=True))
        programs = self._programs()
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
            "d: written into the root": sorted(set(_listing(self.moved).items()) - set(before.items()))[:20],
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
        subprocess.run(["chmod", "-R", "a+rX,a-w", str(self.moved)], check=True)
        self.scratch.mkdir()
        self.scratch.chmod(0o777)

    def _start(self, name: str, root: Path, read_only: bool = False) -> float:
        out = self.folder / f"{name.replace(' ', '-')}.json"
        out.touch()
        out.chmod(0o666)
        command = [*PROGRAM, "start-report", "--format", "json", "-o", str(out), "--ready", self.asked.ready]
        log = self.folder / f"{name.replace(' ', '-')}.log"
        with log.open("wb") as file:
            subprocess.run(
                [*command, "--stop-when-ready", "--", *self._as_who(read_only), *self.asked.command],
                env=self._environment(root, read_only),
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_SECONDS,
                check=False,
            )
        if not out.read_bytes():
            raise SystemExit(f"{name} was not ready:\n{log.read_text(errors='replace')[-3000:]}")
        self.reports[name] = json.loads(out.read_text())
        seconds = self._seconds(name)
        print(name, seconds, "ready" if self.reports[name]["ready"] else "NOT READY", flush=True)
        return seconds

    def _seconds(self, name: str) -> float:
        return round(float(self.reports[name]["wall_seconds"]), 2)

    def _environment(self, root: Path, read_only: bool) -> dict[str, str]:
        command = [
            *PROGRAM,
            "relocate",
            str(root),
            "--sglang-version",
            self.asked.release,
            "--format",
            "json",
        ]
        if read_only:
            command += ["--read-only", "--scratch", str(self.scratch)]
        told = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
        given = dict(told["environment"])
        paths = [given.pop("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")]
        home = {"HOME": str(self.scratch)} if read_only else {}
        return {**os.environ, **given, **home, "PYTHONPATH": ":".join(filter(None, paths))}

    def _as_who(self, read_only: bool) -> list[str]:
        if not read_only or os.geteuid():
            return []
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]

    def _programs(self) -> dict[str, int]:
        """Every program that a start of (d) executes; a compiler with its arguments."""
        strace = shutil.which("strace")
        if strace is None:
            return {}
        trace = self.scratch / "trace"
        command = [strace, "-f", "-qq", "-s", "200", "-e", "trace=execve", "-o", str(trace)]
        subprocess.run(
            [*self._as_who(True), *command, *self.asked.command],
            env=self._environment(self.moved, True),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        if not trace.exists():
            return {}
        started = re.findall(
            r'execve\("([^"]+)", \[(.*?)\], .* = 0$', trace.read_text(errors="replace"), re.MULTILINE
        )
        return dict(Counter(_told(path.rpartition("/")[2], words) for path, words in started))


def _told(program: str, words: str) -> str:
    if program not in NAMES:
        return program
    return " ".join([program, *re.findall(r'"([^"]*)"', words)[1:]])


def _listing(root: Path) -> dict[str, tuple[int, int]]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


if __name__ == "__main__":
    main()

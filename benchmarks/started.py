"""A server's start under `start-report`, on a root of stores: its own, or one that it can only read."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgl_tune.start_report.compilers import NAMES

PROGRAM = [sys.executable, "-m", "sgl_tune.cli.app"]
LIMIT_SECONDS = 400
NOBODY = 65534
AS_NOBODY = (
    ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"] if not os.geteuid() else []
)


def out_of_reach(root: Path, scratch: Path) -> None:
    """Of a server that is nobody's; `scratch` is where it may write."""
    subprocess.run(["chmod", "-R", "a+rX,a-w", str(root)], check=True)
    scratch.mkdir()
    scratch.chmod(0o777)


@dataclass(frozen=True, slots=True)
class Starter:
    release: str
    ready: str

    def start(self, place: Path, root: Path, command: Sequence[str], scratch: Path | None) -> dict[str, Any]:
        """The report; it and the server's log lie beside `place`. With `scratch` the server is nobody."""
        out, log = place.with_suffix(".json"), place.with_suffix(".log")
        out.touch()
        out.chmod(0o666)
        report = [*PROGRAM, "start-report", "--format", "json", "-o", str(out), "--ready", self.ready]
        who = AS_NOBODY if scratch is not None else []
        with log.open("wb") as file:
            subprocess.run(
                [*report, "--stop-when-ready", "--", *who, *command],
                env=self.environment(root, scratch),
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_SECONDS,
                check=False,
            )
        told = dict(json.loads(out.read_bytes() or b"{}"))
        if not told.get("ready"):
            raise SystemExit(f"{place.name} was not ready:\n{log.read_text(errors='replace')[-3000:]}")
        return told

    def environment(self, root: Path, scratch: Path | None) -> dict[str, str]:
        command = [*PROGRAM, "relocate", str(root), "--sglang-version", self.release, "--format", "json"]
        if scratch is not None:
            command += ["--scratch", str(scratch)]
        told = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
        given = dict(told["environment"])
        paths = [given.pop("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")]
        home = {"HOME": str(scratch)} if scratch is not None else {}
        return {**os.environ, **given, **home, "PYTHONPATH": ":".join(filter(None, paths))}


def programs(
    starter: Starter, root: Path, trace: Path, command: Sequence[str], scratch: Path | None = None
) -> dict[str, int]:
    """Return every program that a start executes, by name; a compiler with its arguments."""
    strace = shutil.which("strace")
    if strace is None:
        return {}
    traced = [strace, "-f", "-qq", "-s", "200", "-e", "trace=execve", "-o", str(trace)]
    report = [*PROGRAM, "start-report", "--ready", starter.ready, "--stop-when-ready", "--"]
    who = AS_NOBODY if scratch is not None else []
    subprocess.run(
        [*report, *who, *traced, *command],
        env=starter.environment(root, scratch),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    text = trace.read_text(errors="replace") if trace.exists() else ""
    run = re.findall(r'execve\("([^"]+)", \[(.*?)\], .* = 0$', text, re.MULTILINE)
    return dict(Counter(_told(path.rpartition("/")[2], words) for path, words in run))


def _told(program: str, words: str) -> str:
    if program not in NAMES:
        return program
    return " ".join([program, *re.findall(r'"([^"]*)"', words)[1:]])

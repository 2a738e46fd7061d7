"""What `warm --everything` made, packed, unpacked elsewhere and started from: what does the server build?

    PYTHONPATH=. python benchmarks/shipped_root.py [--also 'ANOTHER COMMAND'] -- THE SERVER'S COMMAND

The first root is deleted before the bundle is opened; the server is nobody's and can only read what was
unpacked. `--also` starts another command on it, ready at --also-ready. It writes shipped_root.json.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import write_record
from benchmarks.started import LIMIT_SECONDS, PROGRAM, Starter, out_of_reach


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--release", default="0.5.17")
    options.add_argument("--ready", default="The server is fired up")
    options.add_argument("--also")
    options.add_argument("--also-ready", default="^LOADED")
    options.add_argument("--name", default="shipped_root")
    options.add_argument("command", nargs="+")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="shipped-root.") as folder:
        Path(folder).chmod(0o755)
        found = _shipped(asked, Path(folder))
    write_record(asked.name, found)
    print(json.dumps({name: value for name, value in found.items() if name != "reports"}, indent=1))


def _shipped(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    made, bundle, root = folder / "made", folder / "bundle.tar.gz", folder / "unpacked"
    warm = ["warm", "--everything", "--server", asked.release]
    warmed, warm_seconds = _tool([*warm, "--cache-dir", str(made), "--", *asked.command])
    _, pack_seconds = _tool(["pack", str(made), "--store", "all", "-o", str(bundle)])
    shutil.rmtree(made)
    unpacked, unpack_seconds = _tool(["unpack", str(bundle), "--cache-dir", str(root)])
    scratch = folder / "scratch"
    out_of_reach(root, scratch)
    commands = {"server": (asked.command, asked.ready)}
    if asked.also:
        commands["also"] = (shlex.split(asked.also), asked.also_ready)
    reports = {}
    for name, (command, ready) in commands.items():
        reports[name] = Starter(asked.release, ready).start(folder / name, root, command, scratch)
        print(name, json.dumps(_of_note(reports[name])), flush=True)
    return {
        "seconds": {"warm": warm_seconds, "pack": pack_seconds, "unpack": unpack_seconds},
        "everything": warmed.get("everything"),
        "bundle bytes": bundle.stat().st_size,
        "unpacked": {key: value for key, value in unpacked.items() if not isinstance(value, (list, dict))},
        "starts": {name: _of_note(report) for name, report in reports.items()},
        "reports": reports,
    }


def _of_note(report: dict[str, Any]) -> dict[str, Any]:
    names = ("ready", "ready_by", "wall_seconds", "compiled", "profiled", "caches", "written")
    return {name: report[name] for name in names}


def _tool(words: Sequence[str]) -> tuple[dict[str, Any], float]:
    began = time.monotonic()
    done = subprocess.run(
        [*PROGRAM, *_with_json(words)], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    seconds = round(time.monotonic() - began, 2)
    print(words[0], seconds, "s, exit", done.returncode, flush=True)
    if done.returncode:
        raise SystemExit(done.stderr[-4000:] + done.stdout[-2000:])
    return dict(json.loads(done.stdout)), seconds


def _with_json(words: Sequence[str]) -> list[str]:
    at = words.index("--") if "--" in words else len(words)
    return [*words[:at], "--format", "json", *words[at:]]


if __name__ == "__main__":
    main()

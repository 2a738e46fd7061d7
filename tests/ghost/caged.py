"""Runs Python code in the cage, in a process of its own, and returns its output and the protections."""

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_BEFORE = """
import sys, types, os, json
package = types.ModuleType("runtime")
package.__path__ = [{root!r}]
sys.modules["runtime"] = package
from runtime.ghost.inside import cage, stream
told = json.loads(sys.argv[1])
stream.open_stream(told["stream"])
{before}
holds = cage.enter(told["work"], told["writable"], told["code"])
stream.say("holds", holds=holds)
"""


@dataclass(frozen=True)
class Said:
    code: int
    output: str
    holds: tuple[str, ...]
    tried: tuple[dict[str, Any], ...]

    @property
    def kinds(self) -> set[str]:
        return {one["kind"] for one in self.tried}


def caged(
    work: Path, body: str, *, before: str = "", writable: tuple[Path, ...] = (), code: tuple[Path, ...] = ()
) -> Said:
    """Run `body` in the cage of `work`; `before` runs ahead of it, outside."""
    work.mkdir(exist_ok=True)
    script = work.parent / f"{work.name}.py"
    start = _BEFORE.format(root=str(ROOT / "runtime"), before=textwrap.dedent(before))
    script.write_text(start + textwrap.dedent(body))
    ours, theirs = os.pipe()
    told = {"stream": theirs, "work": str(work), "writable": [*map(str, writable)], "code": [*map(str, code)]}
    command = [sys.executable, "-I", script, json.dumps(told)]
    variables = {"HOME": str(work), "PATH": "/usr/bin:/bin", "TMPDIR": str(work)}
    streams = {"pass_fds": [theirs], "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=work, env=variables, timeout=120, **streams)
    os.close(theirs)
    with os.fdopen(ours) as stream:
        events = [json.loads(line) for line in stream]
    holds = next((tuple(one["holds"]) for one in events if one["event"] == "holds"), ())
    return Said(done.returncode, done.stdout, holds, tuple(one for one in events if one["event"] == "tried"))

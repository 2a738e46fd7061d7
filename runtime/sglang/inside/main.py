"""Runs under a server's own Python: imports SGLang once, then starts a server per request line on stdin.

    SERVER_PYTHON -I main.py '{"stream": FD, "parent": PID, "ghost": LIBRARY, "small": true, "halves": {},
        "kernels": FOLDER, "work": FOLDER, "remote_code": false}'

On the ghost each start is forked from this process. A real GPU does not work after a fork, so without "ghost"
a start runs in a process of its own, which imports again.

sgl-tune is not installed in that Python. `runtime` becomes a package that consists only of a path, so that
the other files of this folder are found, and no other folder of sgl-tune is.
"""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any


def _find_ourselves() -> None:
    package = types.ModuleType("runtime")
    package.__path__ = [str(Path(__file__).resolve().parents[2])]
    sys.modules["runtime"] = package


if __name__ == "__main__":
    _find_ourselves()

from runtime.baking.inside import install as baking  # noqa: E402
from runtime.flashinfer.inside import calls, contexts, makers, unfinished  # noqa: E402, F401  before it is
from runtime.ghost.inside import cage, garbage, hooks, install, stream  # noqa: E402
from runtime.ghost.inside.sources import verdict  # noqa: E402
from runtime.sglang.inside import imports, start  # noqa: E402


def main() -> None:
    given = json.loads(sys.argv[1])
    stream.open_stream(given["stream"])
    _end_with(given["parent"])
    if not given["ghost"] and not given.get("alone"):
        _watch_alone(given)
        return
    holds: list[str] = []
    hooks.install()
    if given["ghost"]:
        own = [cage.model_code(os.environ["HOME"])] if given["remote_code"] else []
        holds = cage.enter(given["work"], given["writable"], [*own, *given["runnable"]])
        wraps = baking.before_the_ghost() if given["bakes"] else []
        install.install(given["ghost"], given["small"], given["halves"])
        for wrap in wraps:
            wrap()
    else:
        hooks.leave_out("runtime.ghost")
    try:
        imports.import_server()
    except BaseException as error:
        stream.say("broken", text=f"{type(error).__name__}: {error}"[:2000])
        raise SystemExit(1) from error
    if given["ghost"]:
        install.imported(given["kernels"])
        if not given["remote_code"]:
            verdict.share()
    garbage.freeze_for_good()  # a start collects four times, and none of what was imported is garbage
    stream.say("hello", **imports.versions(), cpu=round(sum(os.times()[:2]), 2), cage=holds)
    for line in sys.stdin:
        request = json.loads(line)
        if given["ghost"]:
            _fork(request)
        else:
            start.start(request)


def _watch_alone(given: dict[str, Any]) -> None:
    """Run the one start in a child, because SGLang signals its parent when it fails; this ignores that."""
    handed = json.dumps({**given, "alone": True, "parent": os.getpid()})
    options = (word for name, value in sys._xoptions.items() for word in ("-X", f"{name}={value}"))
    command = [sys.executable, "-I", *options, __file__, handed]
    child = subprocess.Popen(command, pass_fds=[given["stream"]], start_new_session=True)
    stream.say("began", pid=child.pid)
    code = child.wait()
    _end_group(child.pid)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    _ended(code, used)


def _fork(request: dict[str, Any]) -> None:
    """Run a start in a forked child, which shares everything imported, and report how it ended."""
    mother = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            _end_with(mother)
            os.setsid()
            cage.keep_together()
            import torch

            # After a fork torch refuses the GPU, but the ghost has no state that a fork breaks.
            torch.cuda._is_in_bad_fork = lambda: False
            start.start(request)
        finally:
            os._exit(70)
    stream.say("began", pid=child)
    _, status, used = os.wait4(child, 0)
    _end_group(child)
    verdict.learn()
    code = os.waitstatus_to_exitcode(status)
    if code < 0 and (call := _crashed_in(request["log"])):
        stream.say("broken", text=f"its process died of {signal.Signals(-code).name} in {call}")
    _ended(code, used)


def _crashed_in(log: str) -> str | None:
    """Return the Python function in which a process died, if `faulthandler` wrote one."""
    text = Path(log).read_text(errors="replace")
    found = re.findall(r'^Current thread .*\n  File "(.*)", line (\d+) in (.*)', text, re.MULTILINE)
    return "{}:{} {}".format(*found[-1]) if found else None


def _ended(code: int, used: resource.struct_rusage) -> None:
    stream.say("ended", code=code, cpu=round(used.ru_utime + used.ru_stime, 2), rss=used.ru_maxrss * 1024)


def _end_group(leader: int) -> None:
    """Kill the children of a start (compile workers, a loader's threads) when it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends. Ignore SIGQUIT, which SGLang sends parents."""
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)


if __name__ == "__main__":
    main()

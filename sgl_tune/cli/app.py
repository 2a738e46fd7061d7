"""`sgl-tune`, from the shell's call to the exit code."""

from __future__ import annotations

import gc
import sys

from sgl_tune.cli.failures import interrupted, say_lost, unexpected, wrong_usage
from sgl_tune.cli.streams import lost_output, steady
from sgl_tune.errors import UsageError

_TRACEBACK = "--traceback"


def main() -> int:
    # What starts and lists leaves no garbage: to search for it, here and at exit, took a fifth of the time.
    gc.set_threshold(100_000)
    steady()
    try:
        return _run()
    finally:
        say_lost(lost_output())
        gc.freeze()


def _run() -> int:
    try:
        from sgl_tune.cli.pages import app

        sys.argv = [sys.argv[0], *words_of(sys.argv[1:])]
        return app(prog_name="sgl-tune", standalone_mode=False) or 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        return interrupted()
    except Exception as error:  # the one place that catches everything: no traceback unless asked for
        return wrong_usage(error) or unexpected(error)


def words_of(typed: list[str]) -> list[str]:
    """--traceback may stand anywhere before a server's command; a `--` promises one."""
    ours = typed[: typed.index("--")] if "--" in typed else typed
    if typed[-1:] == ["--"]:
        raise UsageError("after -- stands nothing", "a server's command: python -m sglang.launch_server ...")
    if _TRACEBACK not in ours:
        return typed
    return [_TRACEBACK, *(word for word in ours if word != _TRACEBACK), *typed[len(ours) :]]


if __name__ == "__main__":
    sys.exit(main())

"""Turn every way a command can fail into a line on stderr and an exit code."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtime.server.errors import ConfigError
from sgl_tune.cli.out import Output
from sgl_tune.errors import Ended, SglTuneError, UsageError

INTERRUPTED = 130
UNEXPECTED = LOST = 3
_SHOWS_WHERE = "SGL_TUNE_TRACEBACK=1 shows where"


def guarded(command: Callable[[], Any]) -> int:
    try:
        command()
    except Ended as end:
        return end.code
    except (ConfigError, SglTuneError) as error:
        _say(error.message, error.remedy)
        return error.exit_code if isinstance(error, SglTuneError) else UsageError.exit_code
    except KeyboardInterrupt:
        return interrupted()
    except OSError as error:
        return refused(error)
    return 0


def wrong_usage(error: Exception) -> int:
    """Print a usage error that click or sgl-tune raised; return its exit code, or 0 for any other error."""
    if isinstance(error, UsageError):
        _say(error.message, error.remedy)
        return error.exit_code
    if not hasattr(error, "format_message"):
        return 0
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error.format_message()}\n")
    else:
        from sgl_tune.cli.usage import told

        wrong = told(error)
        _say(wrong.message, wrong.remedy)
    return UsageError.exit_code


def interrupted() -> int:
    _say("interrupted")
    return INTERRUPTED


def refused(error: OSError) -> int:
    """Print an error of the operating system, such as a full disk; return the exit code."""
    _trace(error)
    if _is_nowhere():
        _say("the folder that this was started in is gone", "cd to one that is there")
        return UsageError.exit_code
    where = f"{error.filename}: " if error.filename is not None else ""
    _say(f"{where}{error.strerror or error}", None if where else _SHOWS_WHERE)
    return UsageError.exit_code if error.errno == errno.ENAMETOOLONG else SglTuneError.exit_code


def _is_nowhere() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def unexpected(error: Exception) -> int:
    _trace(error)
    reason = str(error).strip().splitlines()
    _say(
        f"unexpected {type(error).__name__}{': ' + reason[0] if reason else ''}",
        f"this is a bug in sgl-tune; {_SHOWS_WHERE}",
    )
    return UNEXPECTED


def with_loss(code: int, why: str | None) -> int:
    """Return the exit code of a command whose output was partly lost: 3 instead of 0 or 1."""
    if not why:
        return code
    _say(f"not all of the output could be written: {why}", "make room where it goes, and run it again")
    return LOST if code in (0, 1) else code


def _trace(error: Exception) -> None:
    if os.environ.get("SGL_TUNE_TRACEBACK"):
        import traceback

        traceback.print_exception(error)


def _say(message: str, remedy: str | None = None) -> None:
    Output().error(message, remedy)

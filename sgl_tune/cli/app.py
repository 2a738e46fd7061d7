"""Run `sgl-tune`, from the command line as typed to the exit code, with streams that never raise."""

import atexit
import codecs
import errno
import gc
import io
import os
import select
import sys
from itertools import pairwise
from typing import Any, NoReturn, TextIO

from sgl_tune.cli.failures import guarded, interrupted, unexpected, with_loss, wrong_usage
from sgl_tune.errors import UsageError

_COMPLETIONS = ("--install-completion", "--show-completion")
_ONE = {"--model-path": "models", "--model": "models", "-f": "files", "--file": "files"}


def program() -> NoReturn:
    """Run the command and exit without Python's own shutdown, which takes longer than listing 100 caches."""
    code = main()
    threading = sys.modules.get("threading")  # importing it takes longer than this look
    if (threading and threading.active_count() > 1) or "torch" in sys.modules:
        sys.exit(code)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def main() -> int:
    # Short commands leave no garbage; searching for it, here and at exit, took a fifth of the time.
    gc.set_threshold(100_000)
    steady()
    code = _run()
    gc.freeze()
    return with_loss(code, lost_output())


def _run() -> int:
    try:
        words = sys.argv[1:]
        check_words(words)
        if words and words[0].partition("=")[0] in _COMPLETIONS:
            from sgl_tune.cli.completion import complete

            return guarded(lambda: complete(words))
        from sgl_tune.cli.grammar import app

        return app(prog_name="sgl-tune", standalone_mode=False) or 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        return interrupted()
    except Exception as error:  # the only place that catches everything: no traceback unless asked for
        return wrong_usage(error) or unexpected(error)


def check_words(typed: list[str]) -> None:
    """Refuse a command line that ends in `--`, and, before `--`, empty words, two models and two files."""
    if typed[-1:] == ["--"]:
        raise UsageError("after -- stands nothing", "a server's command: python -m sglang.launch_server ...")
    named: dict[str, dict[str, None]] = {}
    for before, word in pairwise(["", *(typed[: typed.index("--")] if "--" in typed else typed)]):
        option, equals, value = word.partition("=")
        is_inside = word.startswith("--") and equals == "="
        if not (value if is_inside else word):
            # An empty word is an unset shell variable; as a path it would be the current folder.
            name = option if is_inside else before if before.startswith("-") else "an argument"
            raise UsageError(f"{name} is empty", "is a variable in it not set? leave it out, or give a value")
        if what := _ONE.get(before) or (_ONE.get(option) if is_inside else None):
            named.setdefault(what, {})[word if before in _ONE else value] = None
    for what, given in named.items():
        if len(given) > 1:
            raise UsageError(f"{len(given)} {what} are named: {', '.join(given)}", "leave one")


_STAND_INS = "sgl_tune.stand_ins"
_SIGNS = {"±": "+-", "…": "..."}


def _stand_in(error: UnicodeError) -> tuple[str | bytes, int]:
    """Codec error handler: write our own symbols as ASCII, and escape any other character."""
    if isinstance(error, UnicodeEncodeError) and (sign := _SIGNS.get(error.object[error.start])):
        return sign, error.start + 1
    return codecs.backslashreplace_errors(error)


class Unfailing(io.FileIO):
    """A stream that drops everything after a failed write. `lost`: the error of that write."""

    lost: OSError | None = None

    def write(self, data: Any, /) -> int:
        if self.lost is None:
            try:
                while (written := super().write(data)) is None:  # the pipe was made non-blocking
                    select.select([], [self], [])
                return written
            except OSError as error:
                self.lost = error
        return memoryview(data).nbytes


def steady() -> None:
    """Make the standard streams usable. A closed one is opened on /dev/null: no file may take its number."""
    codecs.register_error(_STAND_INS, _stand_in)
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _unfailing(1, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _unfailing(2, sys.stderr)


def _unfailing(descriptor: int, stream: TextIO | None) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(Unfailing(descriptor, "wb", closefd=False)),
        encoding=stream.encoding if stream else "utf-8",
        errors=_STAND_INS,  # file names may be no text, and a terminal may lack our symbols
        line_buffering=descriptor == 2 or os.isatty(descriptor),
    )


def lost_output() -> str | None:
    """Return why stdout was not fully written, or None. A reader that closed the pipe is no error."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    lost = raw.lost if isinstance(raw, Unfailing) else None
    return lost.strerror if lost and lost.errno != errno.EPIPE else None


if __name__ == "__main__":
    program()

"""The command line's frame: finds a command's page, turns every failure into one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sgl_tune.errors import SglTuneError
from sgl_tune.out import Output

COMMANDS = (
    "warm",
    "verify",
    "inspect",
    "diff",
    "prune",
    "env",
    "mem-report",
    "pack",
    "unpack",
    "push",
    "pull",
)
INTERRUPTED = 130


class Pages(TyperGroup):
    """Imports a command's module when that command is asked for, so that every start is fast."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in COMMANDS if find_spec(_module(name))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.list_commands(ctx):
            return None
        page = typer.Typer(add_completion=False, rich_markup_mode=None)
        page.command(cmd_name)(getattr(import_module(_module(cmd_name)), cmd_name.replace("-", "_")))
        return typer.main.get_command(page)

    def invoke(self, ctx: Any) -> Any:
        # Inside the frame's own handling: it would answer Ctrl-C with 1 and a closed pipe with 1.
        code = _guarded(lambda: super(Pages, self).invoke(ctx))
        raise typer.Exit(code)


app = typer.Typer(
    cls=Pages,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        from sgl_tune import __version__

        typer.echo(f"sgl-tune {__version__}")
        raise typer.Exit()


def _ask_traceback(asked: bool) -> None:
    if asked:
        os.environ["SGL_TUNE_TRACEBACK"] = "1"  # through the environment: worker processes see it too


@app.callback()
def frame(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option(
            "--traceback", callback=_ask_traceback, help="Show Python's traceback of an unexpected failure."
        ),
    ] = False,
) -> None:
    """Tune an SGLang deployment's FlashInfer caches once, prove the next server start will use them,
    and see which startup phase takes the memory.

    Exit codes: 0 good, 1 what was checked is bad, 2 wrong usage or not found, 3 the work itself failed.

    Example: sgl-tune warm --tp 8 --dp 8
    """


def main() -> int:
    try:
        app(prog_name="sgl-tune")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except (
        Exception
    ) as error:  # the one place that may catch everything: a user never sees a traceback unasked
        return _unexpected(error)
    return 0


def _guarded(command: Callable[[], Any]) -> int:
    try:
        command()
        sys.stdout.flush()
    except SglTuneError as error:
        Output().error(error.message, error.remedy)
        return error.exit_code
    except KeyboardInterrupt:
        Output().error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


def _unexpected(error: Exception) -> int:
    if os.environ.get("SGL_TUNE_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    reason = str(error).strip().splitlines()
    Output().error(
        f"unexpected {type(error).__name__}{': ' + reason[0] if reason else ''}",
        "this is a bug in sgl-tune; SGL_TUNE_TRACEBACK=1 or `sgl-tune --traceback ...` shows where",
    )
    return 3


def _module(command: str) -> str:
    return f"sgl_tune.commands.{command.replace('-', '_')}"


if __name__ == "__main__":
    sys.exit(main())

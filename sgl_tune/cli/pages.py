"""The commands and where their pages are; a page is imported when its command is asked for."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import sgl_tune
from runtime.server.nearest import meant
from sgl_tune.cli.failures import guarded
from sgl_tune.errors import UsageError

COMMANDS = {
    "warm": "Tune a deployment's caches once, and prove that its server will use them.",
    "verify": "Predict what the next server start does with each file, and why.",
    "explain": "Say what SGLang makes of a server command, and what an upgrade changes.",
    "inspect": "List the caches on this disk.",
    "diff": "Compare two caches, or two files.",
    "export": "Write a cache where vLLM or FlashInfer's managed store looks for it.",
    "pack": "Put caches and stores into one file, the same bytes for the same contents.",
    "unpack": "Check such a file, and put what is in it where a server looks.",
    "relocate": "Make stores of kernels that were moved work where they are.",
    "push": "Send a bundle to a registry.",
    "pull": "Get a bundle from a registry.",
    "prune": "Remove the caches nobody needs.",
    "env": "Show what FlashInfer would write into a cache file here.",
    "mem-report": "Show which phase of a start takes the memory, or predict it.",
    "start-report": "Show where the seconds of a start went, and what would spare them.",
}


EXIT_CODES = (
    "Exit codes: 0 good, 1 what was checked is bad, 2 wrong usage or not found, 3 the work itself failed,"
    " 130 interrupted."
)


class Pages(TyperGroup):
    """One level of commands, each in a module of its name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        page = typer.Typer(add_completion=False, rich_markup_mode=None)
        page.command(cmd_name, epilog=EXIT_CODES)(getattr(import_module(f"sgl_tune.commands.{name}"), name))
        return typer.main.get_command(page)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """From the table above: asking every command for its own words would import them all."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        # Typer brings a click of its own, or an older one takes the installed: the group's is the right one.
        click = TyperGroup.__mro__[1].__module__.rpartition(".")[0]
        item = import_module(f"{click}.shell_completion").CompletionItem
        return [item(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            known = f"the commands are {', '.join(COMMANDS)}"
            raise UsageError(f"{args[0]}: no such command", meant(args[0], COMMANDS) or known)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        # Inside the frame's own handling, which would answer Ctrl-C and a closed pipe with 1.
        raise typer.Exit(guarded(lambda: self._run(ctx)))

    def _run(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            # A parser that lacks a value does not say of which command.
            if getattr(error, "ctx", ctx) is None and ctx.invoked_subcommand:
                command = self.get_command(ctx, ctx.invoked_subcommand)
                error.ctx = type(ctx)(command, info_name=command.name, parent=ctx)  # type: ignore[attr-defined]
            raise


app = typer.Typer(
    cls=Pages,
    epilog=EXIT_CODES,
    add_completion=True,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"sgl-tune {sgl_tune.__version__}")
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
    and see which startup phase takes the memory, and which the time.

    Example: sgl-tune warm --tp 8 --dp 8
    """

"""Build typer's commands from the modules in `commands/`: how they are read, their help, their errors."""

import functools
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

import sgl_tune
from runtime.server.nearest import meant
from sgl_tune.cli.failures import guarded
from sgl_tune.cli.pages import COMMANDS, EXIT_CODES, GROUPS, PANELS, page_of
from sgl_tune.cli.parameters import REQUIRED, Argument, Option, Parameter, declared_as, parameters_of
from sgl_tune.errors import UsageError

_HELP_SERVER = "help_server"
_BEFORE = (
    "These flags of SGLang may stand before --, with SGLang's names and meanings. All others stand in the"
    " server's command: sgl-tune warm -- python -m sglang.launch_server --model-path M ..."
)


def in_typers_words(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with its options declared as typer needs them.

    A parameter that is a record of options, such as `ServerFlags`, becomes one typer option per field.
    """
    parameters = parameters_of(command)
    records = {one.name: _options_of(one.kind) for one in parameters if one.declared is None}
    own = [one for one in parameters if one.name not in records]

    @functools.wraps(command)
    def called(**arguments: Any) -> Any:
        made = {}
        for one in parameters:
            if one.name in records:
                given = {option.name: arguments.pop(option.name) for option in records[one.name]}
                made[one.name] = getattr(one.kind, "of", one.kind)(**given)
        arguments.pop(_HELP_SERVER, None)
        return command(**made, **arguments)

    of_records = [option for options in records.values() for option in options]
    signature = [_as_typer_has_it(one) for one in (*own, *of_records)]
    options = [one.declared for one in of_records if isinstance(one.declared, Option)]
    if flags := [one for one in options if one.told.get("hidden")]:
        signature.append(_help_server(flags))
    called.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in signature}
    del called.__wrapped__  # type: ignore[attr-defined]
    return called


def _options_of(record: Any) -> list[Parameter]:
    found = []
    for name, hint in get_type_hints(record, include_extras=True).items():
        one = declared_as(name, hint, record.__dataclass_fields__[name].default)
        if one.declared is not None:
            found.append(one)
        elif hasattr(one.kind, "__dataclass_fields__"):
            found += _options_of(one.kind)
    return found


def _help_server(flags: list[Option]) -> inspect.Parameter:
    """Return the option --help-server, which lists SGLang's flags that --help hides."""

    def listed(ctx: typer.Context, asked: bool) -> None:
        if asked:
            formatter = ctx.make_formatter()
            formatter.write_text(_BEFORE)
            with formatter.section("SGLang's flags"):
                spelled = (
                    f"{', '.join(one.names)} {one.told.get('metavar') or ''}".rstrip() for one in flags
                )
                formatter.write_dl(list(zip(spelled, (one.told["help"] for one in flags), strict=True)))
            typer.echo(formatter.getvalue().rstrip())
            raise typer.Exit()

    option = typer.Option(
        "--help-server", callback=listed, is_eager=True, help="List SGLang's own flags, such as --tp."
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(_HELP_SERVER, kind, default=False, annotation=Annotated[bool, option])


def _as_typer_has_it(one: Parameter) -> inspect.Parameter:
    assert one.declared
    if isinstance(one.declared, Argument):
        word = typer.Argument(**one.declared.told)
    else:
        word = typer.Option(*one.declared.names, **one.declared.told)
    default = inspect.Parameter.empty if one.default is REQUIRED else one.default
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(one.name, kind, default=default, annotation=Annotated[one.kind, word])


class Level(TyperGroup):
    """A group of commands. A command's module is imported only when the command is needed."""

    above = ""

    @property
    def own(self) -> Mapping[str, str]:
        return GROUPS[self.above.strip()] if self.above else COMMANDS

    @property
    def panels(self) -> Mapping[str, Mapping[str, str]]:
        return {"Commands": self.own} if self.above else PANELS

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.own)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.own:
            return None
        page = typer.Typer(add_completion=False, rich_markup_mode=None)
        page.command(cmd_name, epilog=EXIT_CODES)(in_typers_words(page_of(f"{self.above}{cmd_name}")))
        return typer.main.get_command(page)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands from `panels`, because asking each command would import all modules."""
        for panel, commands in self.panels.items():
            with formatter.section(panel):
                formatter.write_dl(list(commands.items()))

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        # Newer typers bundle click, older ones use the installed one: take the group's.
        click = TyperGroup.__mro__[1].__module__.rpartition(".")[0]
        item = import_module(f"{click}.shell_completion").CompletionItem
        return [item(name, help=text) for name, text in self.own.items() if name.startswith(incomplete)]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.own and not args[0].startswith("-"):
            known = f"the commands are {', '.join(self.own)}"
            raise UsageError(f"{self.above}{args[0]}: no such command", meant(args[0], self.own) or known)
        return super().resolve_command(ctx, args)


_LOOKS: dict[str, Any] = {
    "no_args_is_help": True,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def group_of(name: str) -> Any:
    """Return the group of subcommands below the command `name`."""
    level = type("Group", (Level,), {"above": f"{name} "})
    page = typer.Typer(cls=level, add_completion=False, **_LOOKS)
    page.callback(
        epilog=EXIT_CODES, help=f"{COMMANDS[name]}\n\nExample: sgl-tune {name} {next(iter(GROUPS[name]))}"
    )(lambda: None)
    found = typer.main.get_command(page)
    found.name = name
    return found


class Pages(Level):
    """The top level of the program: commands, some of which are groups of subcommands."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)
        for one in found:
            one.hidden = one.hidden or one.name == "show_completion"
        return found

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return group_of(cmd_name) if cmd_name in GROUPS else super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        # Inside typer's own handling, which would turn Ctrl-C and a closed pipe into exit code 1.
        raise typer.Exit(guarded(lambda: self._run(ctx)))

    def _run(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            # An option without a value raises an error that does not name the command.
            if getattr(error, "ctx", ctx) is None and ctx.invoked_subcommand:
                command = self.get_command(ctx, ctx.invoked_subcommand)
                error.ctx = type(ctx)(command, info_name=command.name, parent=ctx)  # type: ignore[attr-defined]
            raise


app = typer.Typer(cls=Pages, epilog=EXIT_CODES, pretty_exceptions_enable=False, **_LOOKS)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"sgl-tune {sgl_tune.__version__}")
        raise typer.Exit()


@app.callback()
def frame(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Tune an SGLang deployment's FlashInfer caches once, prove the next server start will use them,
    and see which startup phase takes the memory, and which the time.

    Example: sgl-tune warm --tp 8 --dp 8
    """

"""How a command's module declares its options and arguments without importing typer.

`grammar.py` translates the declarations for typer. Code that imports a command's module only for its
functions need not import typer.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

REQUIRED = object()


class Option:
    """An option. `told`: the keyword arguments for `typer.Option`."""

    def __init__(self, *names: str, **told: Any) -> None:
        self.names, self.told = names, told


class Argument:
    """An argument. `told`: the keyword arguments for `typer.Argument`."""

    names = ()

    def __init__(self, **told: Any) -> None:
        self.told = told


class Parameter(NamedTuple):
    """A parameter of a command's function. `kind`: its type. `declared`: None for a record of options."""

    name: str
    kind: Any
    declared: Option | Argument | None = None
    default: Any = REQUIRED


def parameters_of(command: Callable[..., Any]) -> list[Parameter]:
    """Return the function's parameters. `inspect` is not used: its import takes 10 % of a short command."""
    code, given = command.__code__, command.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    defaults = dict(zip(reversed(names), reversed(given), strict=False))
    hints = get_type_hints(command, include_extras=True)
    return [declared_as(name, hints[name], defaults.get(name, REQUIRED)) for name in names]


def declared_as(name: str, hint: Any, default: Any) -> Parameter:
    # Python 3.10 wraps the hint of a parameter that defaults to None in an Optional.
    hint = next((arm for arm in get_args(hint) if get_origin(arm) is Annotated), hint)
    if get_origin(hint) is Annotated:
        kind, declared = get_args(hint)
        return Parameter(name, kind, declared, default)
    return Parameter(name, hint, None, default)

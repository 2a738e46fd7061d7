"""What a command's page says of its options and arguments: in typer's words, and without typer.

Typer reads command lines by it (`grammar.py`); who imports a page for its functions need not import typer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

REQUIRED = object()


class Option:
    """`told`: as `typer.Option` takes it."""

    def __init__(self, *names: str, **told: Any) -> None:
        self.names, self.told = names, told


class Argument:
    """`told`: as `typer.Argument` takes it."""

    names = ()

    def __init__(self, **told: Any) -> None:
        self.told = told


class Parameter(NamedTuple):
    """Of a command's function. `kind`: its type; `declared` is None of what is no option by itself."""

    name: str
    kind: Any
    declared: Option | Argument | None = None
    default: Any = REQUIRED


def parameters_of(command: Callable[..., Any]) -> list[Parameter]:
    """Not by `inspect`: it takes a tenth of a command on files to import."""
    code, given = command.__code__, command.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    defaults = dict(zip(reversed(names), reversed(given), strict=False))
    hints = get_type_hints(command, include_extras=True)
    return [declared_as(name, hints[name], defaults.get(name, REQUIRED)) for name in names]


def declared_as(name: str, hint: Any, default: Any) -> Parameter:
    # Python 3.10 wraps the hint of what defaults to None in an Optional.
    hint = next((arm for arm in get_args(hint) if get_origin(arm) is Annotated), hint)
    if get_origin(hint) is Annotated:
        kind, declared = get_args(hint)
        return Parameter(name, kind, declared, default)
    return Parameter(name, hint, None, default)

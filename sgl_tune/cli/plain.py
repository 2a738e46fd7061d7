"""Command lines that leave nothing to doubt are read here; all others are typer's, with help and errors.

What is taken here is taken as typer would (`tests/sgl_tune/test_plain.py`): options as they are declared,
each with a value that stands by itself and needs no check but to be there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from sgl_tune.cli.pages import COMMANDS, GROUPS, page_of
from sgl_tune.cli.parameters import REQUIRED, Argument, Parameter, parameters_of

_COMPLETES = "_SGL_TUNE_COMPLETE"
_LOOKS = {"help", "metavar", "show_default", "rich_help_panel", "autocompletion"}  # and changes no value


class _Doubt(Exception):
    """Typer knows what to make of it."""


def plain_call(words: Sequence[str]) -> Callable[[], Any] | None:
    """The command that the words ask for, with its arguments; None where they take more than a look."""
    if not words or words[0] not in COMMANDS or _COMPLETES in os.environ:
        return None
    depth = 1
    if words[0] in GROUPS:
        if len(words) < 2 or words[1] not in GROUPS[words[0]]:
            return None
        depth = 2
    command = page_of(" ".join(words[:depth]))
    try:
        return partial(command, **arguments_of(command, words[depth:]))
    except _Doubt:
        return None


def arguments_of(command: Callable[..., Any], words: Sequence[str]) -> dict[str, Any]:
    parameters = parameters_of(command)
    options, loose = _options(parameters, words)
    given = {**options, **_places(parameters, loose)}
    return {one.name: given[one.name] if one.name in given else _default(one) for one in parameters}


def _options(parameters: Sequence[Parameter], words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """With the words that are none."""
    named = {name: one for one in parameters if one.declared for name in one.declared.names}
    given: dict[str, Any] = {}
    loose, rest = [], iter(words)
    for word in rest:
        if not word.startswith("-"):
            loose.append(word)
            continue
        one = named.get(word)
        if one is None or "/" in word:  # which declares two
            raise _Doubt
        value = True if one.kind is bool else _value(one, next(rest, "-"))
        if get_origin(_kind(one)) is list:
            given.setdefault(one.name, []).append(value)
        elif one.name in given:
            raise _Doubt
        else:
            given[one.name] = value
    return given, loose


def _places(parameters: Sequence[Parameter], loose: Sequence[str]) -> dict[str, Any]:
    """The arguments, which are told by their places; a list takes all that are left."""
    given: dict[str, Any] = {}
    left = list(loose)
    for one in parameters:
        if isinstance(one.declared, Argument) and left:
            if get_origin(_kind(one)) is list:
                given[one.name] = [_value(one, word) for word in left]
                left = []
            else:
                given[one.name] = _value(one, left.pop(0))
    if left:
        raise _Doubt
    return given


def _value(one: Parameter, word: str) -> Any:
    """A word that begins with a dash may be one of another option, or the end of all."""
    kind = _kind(one)
    kind = get_args(kind)[0] if get_origin(kind) is list else kind
    if word.startswith("-") or one.declared is None or not one.declared.told.keys() <= _LOOKS:
        raise _Doubt
    if kind is str:
        return word
    if kind is Path and os.access(word, os.R_OK):  # typer refuses what is there and cannot be read
        return Path(word)
    if isinstance(kind, type) and issubclass(kind, Enum):
        for member in kind:
            if member.value == word:
                return member
    raise _Doubt


def _default(one: Parameter) -> Any:
    if one.default is REQUIRED and one.declared is None:
        return one.kind()  # a record of options, none of which is given
    if one.default is REQUIRED:
        raise _Doubt
    return float(one.default) if one.kind is float else one.default


def _kind(one: Parameter) -> Any:
    """Without the None of what need not be given."""
    arms = [arm for arm in get_args(one.kind) if arm is not NoneType]
    return arms[0] if len(arms) == 1 and get_origin(one.kind) is not list else one.kind

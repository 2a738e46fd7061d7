"""What a module of `parsers/` defines: its inputs, and how one is handed to the real code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from random import Random
from typing import Any

import typer

from sgl_tune.cli.grammar import Pages
from tests.sgl_tune.running import Ran, run_here

EXIT_CODES = (0, 1, 2, 3)
_LONGEST_LINE = 4000


def build_pages_once() -> None:
    """To build a command's options takes half the time of a cheap command, and never ends differently."""
    build, pages = Pages.get_command, dict[str, Any]()

    def kept(self: Pages, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in pages:
            pages[cmd_name] = build(self, ctx, cmd_name)
        return pages[cmd_name]

    Pages.get_command = kept  # type: ignore[method-assign]
    typer.main.get_command = cache(typer.main.get_command)


class Wrong(AssertionError):
    """A command that ended in a way that its documentation does not know; `said` differs by its input."""

    def __init__(self, what: str, said: str = "") -> None:
        super().__init__(what)
        self.what, self.said = what, said


@dataclass(frozen=True)
class Parser:
    """`make` draws an input; `read` hands it over, in an empty folder which is also the working folder.

    `ours` are the exceptions that `read` may raise: those that callers of the parser expect.
    """

    make: Callable[[Random], Any]
    read: Callable[[Any, Path], None]
    ours: tuple[type[Exception], ...] = ()


def parser_names() -> list[str]:
    from tests.fuzz import parsers

    return sorted(module.name for module in iter_modules(parsers.__path__))


def load_parser(name: str) -> Parser:
    found: Parser = import_module(f"tests.fuzz.parsers.{name}").PARSER
    return found


def command(*words: object) -> Ran:
    """Run the command in this process, and check how it ended whatever it was given."""
    ran = run_here(*words)
    if ran.code not in EXIT_CODES:
        raise Wrong(f"exit code {ran.code}")
    if "bug in sgl-tune" in ran.err:
        raise _unexpected(ran.err)
    said = [line for line in ran.err.splitlines() if line.startswith(("error:", "Error:", "warning:"))]
    if ran.code > 1 and not said:
        raise Wrong(f"exit code {ran.code} without an error", ran.err[-300:])
    longest = max((line for line in said if not line.startswith("Error:")), key=len, default="")
    if len(longest) > _LONGEST_LINE:  # what the user typed, the option parser echoes
        raise Wrong("an error of more than 4,000 characters", longest[:100])
    if "json" in words and ran.code < 2 and ran.out.startswith("{"):
        json.loads(ran.out, parse_constant=_no_constant)
    return ran


def _unexpected(stderr: str) -> Wrong:
    """By the innermost line of ours in the traceback, which SGL_TUNE_TRACEBACK asked for."""
    places = re.findall(r'File "[^"]*/(\w+/\w+\.py)", line (\d+)', stderr)
    ours = [f"{file}:{line}" for file, line in places if re.match(r"(?!json|typer|click)", file)]
    said = stderr[stderr.rindex("error: unexpected") :]
    return Wrong(f"unexpected {said.split()[2].rstrip(':')} at {(ours or ['?'])[-1]}", said[:300])


def _no_constant(name: str) -> None:
    raise Wrong(f"{name} in JSON output")

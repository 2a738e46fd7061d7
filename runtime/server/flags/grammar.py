"""Reads a command line as a release's own parser would: argparse, built from the release's table."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NoReturn

from runtime.server.errors import ConfigError
from runtime.server.flags.table import REQUIRED, CommandLine, Flag
from runtime.server.flags.types import GRAPH_BACKEND, GRAPH_CONFIG, TYPES, graph_config
from runtime.server.nearest import nearest

_AMBIGUOUS = re.compile(r"ambiguous option: \S+ could match (.*)")


class Refused(ConfigError):
    """`reason` is argparse's own sentence; `suggestions` the flags that were probably meant, best first."""

    def __init__(self, release: str, reason: str, unknown: str | None, suggestions: Sequence[str]) -> None:
        said = f"SGLang {release} refuses this command: {reason}"
        if unknown is None:
            remedy = f"write it in full: {', '.join(suggestions)}" if suggestions else None
        else:
            remedy = f"{unknown} is unknown" + (f", {suggestions[0]} is near" if suggestions else "")
        super().__init__(said, remedy)
        self.reason = reason
        self.unknown = unknown
        self.suggestions = tuple(suggestions)


@dataclass(frozen=True)
class Parsed:
    """`given`: the server arguments that the command sets. `spelled`: with which flag."""

    command_line: CommandLine
    given: dict[str, Any]
    spelled: dict[str, str]
    ignored: tuple[str, ...]  # flags without any effect, by name
    deprecated: dict[str, str] = field(default_factory=dict)  # flag -> what to write instead

    @property
    def values(self) -> dict[str, Any]:
        return self.command_line.defaults | self.given


def parse(command_line: CommandLine, argv: Sequence[str], serve: bool = False) -> Parsed:
    """`argv` is what follows `sglang serve` (where `serve` is true) or `sglang.launch_server`."""
    words = serve_words(command_line, argv) if serve else list(argv)
    seen = _Seen()
    try:
        _, unknown = _parser(command_line).parse_known_args(words, seen)
    except _Error as error:
        raise _refused(command_line, words, str(error)) from None
    if unknown:
        raise _refused(command_line, words, f"unrecognized arguments: {' '.join(unknown)}")
    return Parsed(command_line, seen.given, seen.spelled, tuple(seen.ignored), seen.deprecated)


def serve_words(command_line: CommandLine, argv: Sequence[str]) -> list[str]:
    """`sglang serve` as `sglang.launch_server`: its first word may be the model, --model-type is its own."""
    words: list[str] = []
    waiting = list(argv)
    while waiting:
        word = waiting.pop(0)
        name, equals, kind = word.partition("=")
        if name != "--model-type":
            words.append(word)
            continue
        if not equals and not waiting:
            raise Refused(command_line.release, "--model-type requires a value", None, [])
        kind = kind if equals else waiting.pop(0)
        if kind not in ("auto", "llm"):
            raise Refused(command_line.release, f"--model-type {kind} starts no language model", None, [])
    if command_line.serve_takes_model and words and not words[0].startswith("-"):
        words.insert(0, "--model-path")
    return words


def _unknown_flags(command_line: CommandLine, words: Sequence[str]) -> list[str]:
    """Those of `words` that look like a flag and neither are one nor begin one."""
    names = command_line.by_name
    found = []
    for word in words:
        name = word.split("=", 1)[0]
        looks = word.startswith("-") and len(word) > 2 and " " not in name and not _number(word)
        if looks and not any(known.startswith(name) for known in (*names, "--help", "-h")):
            found.append(name)
    return found


def _number(word: str) -> bool:
    return word.lstrip("-").replace(".", "", 1).isdigit()


def _refused(command_line: CommandLine, words: Sequence[str], reason: str) -> Refused:
    unknown = next(iter(_unknown_flags(command_line, words)), None)
    if unknown is not None:
        return Refused(command_line.release, reason, unknown, nearest(unknown, command_line.by_name))
    found = _AMBIGUOUS.match(reason)
    meant = found[1].split(", ") if found else []
    return Refused(command_line.release, reason, None, sorted(meant, key=len))


class _Error(Exception):
    pass


class _Seen(argparse.Namespace):
    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.spelled: dict[str, str] = {}
        self.ignored: list[str] = []
        self.deprecated: dict[str, str] = {}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Error(message)


class _Help(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.error("it asks for help and starts no server")


class _Keep(argparse.Action):
    """What each of SGLang's actions does to its server argument."""

    def __init__(self, option_strings: Sequence[str], flag: Flag, **rest: Any) -> None:
        super().__init__(option_strings, **rest)
        self.flag = flag

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        flag, name = self.flag, option_string or self.flag.name
        if flag.action == "refused":
            parser.error(flag.refusal or f"{name} is no longer taken")
        if flag.instead is not None:
            namespace.deprecated[name] = flag.instead
        if flag.action == "ignored":
            namespace.ignored.append(name)
            return
        namespace.given[flag.field] = _value(parser, flag, name, values)
        namespace.spelled[flag.field] = name


def _value(parser: argparse.ArgumentParser, flag: Flag, name: str, values: Any) -> Any:
    if flag.action == "set":
        return flag.const
    if flag.action == "switch":
        return not name.startswith("--no-")
    return [_adapter(parser, text.strip()) for text in values] if flag.action == "lora" else values


def _adapter(parser: argparse.ArgumentParser, text: str) -> Any:
    """A path, NAME=PATH, or a JSON object that names both."""
    if not (text.startswith("{") and text.endswith("}")):
        return text
    try:
        adapter = json.loads(text)
    except (ValueError, RecursionError):
        parser.error(f"--lora-paths: {text!r} is not JSON")
    if not {"lora_name", "lora_path"} <= set(adapter):
        parser.error(f"--lora-paths: {text!r} names no lora_name or no lora_path")
    return adapter


@lru_cache(maxsize=4)
def _parser(command_line: CommandLine) -> _Parser:
    parser = _Parser(add_help=False)
    parser.add_argument("-h", "--help", action=_Help, nargs=0)
    for flag in command_line.flags:
        arity: dict[str, Any] = {"nargs": 0}
        if flag.takes_value:
            arity = {"nargs": flag.nargs, "type": _type(flag, command_line), "choices": flag.choices}
            arity |= {"const": flag.const} if flag.nargs == "?" else {}
        parser.add_argument(
            *flag.names, action=_Keep, flag=flag, dest=flag.field, required=flag.default == REQUIRED,
            default=argparse.SUPPRESS, **arity,
        )  # fmt: skip
    return parser


def _type(flag: Flag, command_line: CommandLine) -> Callable[[str], Any]:
    """A type that a newer release brought and nobody taught us yet takes any text."""
    if flag.type != GRAPH_CONFIG:
        return TYPES.get(flag.type, str)
    checks = any(other.type == GRAPH_BACKEND for other in command_line.flags)
    return partial(graph_config, keys=command_line.graph_keys, checks_backend=checks)

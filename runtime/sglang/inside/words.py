"""What a command sets, and what SGLang and FlashInfer log: why an argument has its value, in their words."""

import argparse
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from runtime.ghost.inside import honesty
from runtime.ghost.inside.stream import say

# A start sets these itself, because weights are random and no tokenizer is used.
OURS = ("load_format", "skip_tokenizer_init", "grammar_backend")
DRAWN = ("random_seed",)  # another one at each start
_FLASHINFER = "flashinfer.jit.core"  # its logger stands in no hierarchy
_PER_ENTRY = ("[Autotuner]: Config cache hit", "[Autotuner]: Loading configs for")  # a line each
_MOST_LINES, _LONGEST = 400, 600


class Parsed(NamedTuple):
    """A command line as SGLang's own parser read it, including the file of --config."""

    parser: argparse.ArgumentParser
    words: tuple[str, ...]
    values: argparse.Namespace

    def given(self) -> dict[str, Any]:
        """Return the arguments that the command sets, by SGLang's names."""
        names = dict.fromkeys(name for word in self.words if (name := self._name(word)))
        there = (name for name in names if hasattr(self.values, name) and name not in OURS)
        return {name: getattr(self.values, name) for name in there}

    def _name(self, word: str) -> str | None:
        flag = word.partition("=")[0]
        actions = self.parser._option_string_actions
        if flag in actions:
            return actions[flag].dest
        begun = {action.dest for name, action in actions.items() if len(flag) > 3 and name.startswith(flag)}
        return begun.pop() if len(begun) == 1 else None

    def defaults(self, resolved: dict[str, Any]) -> dict[str, Any]:
        """Return the defaults of arguments whose resolved value differs."""
        found = {action.dest: self.parser.get_default(action.dest) for action in self.parser._actions}
        known = {name: value for name, value in found.items() if value != argparse.SUPPRESS}
        return {name: known[name] for name, value in resolved.items() if known.get(name, value) != value}


@contextmanager
def parsing() -> Iterator[list[Parsed]]:
    """Yield a list that collects each command line parsed inside."""
    seen: list[Parsed] = []
    real = argparse.ArgumentParser.parse_args

    def parse_args(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        found = real(self, args, namespace)
        seen.append(Parsed(self, tuple(args or ()), found))
        return found

    setattr(argparse.ArgumentParser, "parse_args", parse_args)  # noqa: B010
    try:
        yield seen
    finally:
        setattr(argparse.ArgumentParser, "parse_args", real)  # noqa: B010


def listen() -> None:
    """Report each line that SGLang or FlashInfer logs, once."""
    teller = _Teller()
    logging.getLogger("sglang").addHandler(teller)
    own = getattr(sys.modules.get(_FLASHINFER), "logger", None)
    if isinstance(own, logging.Logger):
        _hear_all(own)
        own.addHandler(teller)


def _hear_all(logger: logging.Logger) -> None:
    """Let FlashInfer's logger still log when SGLang silences it; only its handlers become silent."""
    handlers = list(logger.handlers)

    def silence(level: int) -> None:
        for handler in handlers:
            handler.setLevel(level)

    logger.setLevel(logging.INFO)
    setattr(logger, "setLevel", silence)  # noqa: B010


def plain(value: Any) -> Any:
    """Return an argument's value as data, or its text if it is none."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    return str(value)[:300]


class _Teller(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()[:_LONGEST]
        if text.startswith(_PER_ENTRY):
            return
        if text not in self._told and len(self._told) < _MOST_LINES:
            self._told.add(text)
            say("said", phase=honesty.current(), level=record.levelname.lower(), text=text)

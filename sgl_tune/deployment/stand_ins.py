"""Words that a shell would have replaced: refused, but where their value makes no difference here."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.server.flags import CommandLine, Flag
from runtime.server.flags.effects import without_effect
from sgl_tune.deployment.shell_words import Word
from sgl_tune.errors import UsageError

_ANY_VALUE = {*without_effect(), "dist_init_addr"}
_NUMBERS = ("int", "float", "human_readable_int")


def stand_ins(line: CommandLine, words: Sequence[Word]) -> list[str]:
    """`--host $IP --port $PORT`: any host and any port are the same to a cache."""
    return [_stand_in(line, word, before) for word, before in zip(words, ["", *words], strict=False)]


def _stand_in(line: CommandLine, word: Word, before: str) -> str:
    if not word.expands:
        return str(word)
    name, equals, _ = word.partition("=") if word.startswith("--") else (before, "", "")
    flag = _flag(line, name)
    if flag is None or flag.field not in _ANY_VALUE or flag.choices or not flag.takes_value:
        raise UsageError(f"{word.expands[:200]} in the server command is not expanded", "put its value")
    if flag.type not in _NUMBERS:
        return str(word)
    return f"{name}=1" if equals else "1"


def _flag(line: CommandLine, name: str) -> Flag | None:
    """As argparse finds it: by its name, or by a beginning that no other flag shares."""
    if name in line.by_name:
        return line.by_name[name]
    begun = {
        flag.name: flag for other, flag in line.by_name.items() if len(name) > 2 and other.startswith(name)
    }
    return next(iter(begun.values())) if len(begun) == 1 else None

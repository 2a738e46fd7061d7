"""A server command as somebody starts it, read as SGLang reads it.

    SGLANG_CACHE_DIR=/cache python -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B --tp 4

It is read by its release's own grammar: what that refuses is refused, and what no rule looks at is named.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.server.asked import Asked, changed, is_read
from runtime.server.errors import ConfigError
from runtime.server.flags import Parsed, flags_of, parse
from runtime.server.releases import NEWEST, Release
from runtime.server.resolve import ENVIRONMENT
from sgl_tune.errors import UsageError

READ_ENVIRONMENT = (*ENVIRONMENT, "SGLANG_CACHE_DIR", "HF_HOME", "HF_HUB_CACHE")
# These change shapes, ranks or keys in ways that are not followed here.
NOT_FOLLOWED = frozenset(
    (
        "dcp_size",
        "enable_dynamic_chunking",
        "enable_prefill_cp",
        "flashinfer_mxfp4_moe_precision",
        "json_model_override_args",
        "moe_dp_size",
    )
)
_READ_ELSEWHERE = frozenset(("dist_init_addr",))
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ServerCommandLine:
    """`unread`: what no rule here looks at; `not_followed`: what may change key or entries all the same."""

    asked: Asked
    environment: Mapping[str, str]
    dist_init_addr: str | None
    unread: tuple[str, ...]
    not_followed: tuple[str, ...]


def parse_server_command(words: Sequence[str], release: Release = NEWEST) -> ServerCommandLine:
    """`words` as a shell passes them, or one quoted string of them; read by the release's own grammar."""
    if len(words) == 1 and " " in words[0].strip():
        words = _split(words[0])
    environment, arguments, serve = _split_program(list(words))
    if "--config" in arguments:
        raise UsageError(
            "the server command's --config file is not read", "write its flags on the command line"
        )
    try:
        parsed = parse(flags_of(min(release, NEWEST, key=lambda row: row.number).version), arguments, serve)
        _check_values(parsed)
        asked = changed(Asked(), parsed.given)
    except ConfigError as error:
        raise UsageError(error.message, error.remedy) from error
    unread = [f"{name}={value}" for name, value in environment.items() if name not in READ_ENVIRONMENT]
    not_followed = []
    for name, value in parsed.given.items():
        said = shlex.join([parsed.spelled[name], *_words(value)])
        if name in NOT_FOLLOWED:
            not_followed.append(said)
        elif not is_read(name) and name not in _READ_ELSEWHERE:
            unread.append(said)
    return ServerCommandLine(
        asked,
        environment,
        parsed.given.get("dist_init_addr"),
        tuple(unread),
        tuple(not_followed),
    )


def _check_values(parsed: Parsed) -> None:
    """`--flag=--`: argparse takes the dashes away and calls it good, and the server dies of it later."""
    for name, value in parsed.given.items():
        if value == [] and parsed.command_line.by_field[name].nargs is None:
            raise UsageError(f"{parsed.spelled[name]}: expected one argument")


def _words(value: Any) -> list[str]:
    if isinstance(value, bool):
        return [] if value else ["false"]
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)]


def split_positionals(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """A command's own arguments, and the server command after `--`, which click hands over in one list."""
    for index, word in enumerate(words):
        if word.startswith("-") or _ASSIGNMENT.fullmatch(word) or _is_program(word):
            return list(words[:index]), list(words[index:])
    return list(words), []


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise UsageError(f"the server command cannot be split into words: {error}") from error


def _is_program(word: str) -> bool:
    return re.fullmatch(r"(python[\d.]*|sglang|env|exec)", word.rsplit("/", 1)[-1]) is not None


def _split_program(words: list[str]) -> tuple[dict[str, str], list[str], bool]:
    """Assignments before the program, its arguments, and whether it is `sglang serve`. Bare flags are taken
    as a server's."""
    environment: dict[str, str] = {}
    while words and not words[0].startswith("-"):
        word = words.pop(0)
        assignment = _ASSIGNMENT.fullmatch(word)
        if assignment:
            environment[assignment[1]] = assignment[2]
        elif word.rsplit("/", 1)[-1] in ("env", "exec"):
            continue
        elif _is_program(word):
            return environment, *_server_arguments(word, words)
        else:
            raise UsageError(
                f"after -- stands {word!r}, which starts no SGLang server",
                "paste the whole command: python -m sglang.launch_server --model-path ...",
            )
    return environment, words, False


def _server_arguments(program: str, words: list[str]) -> tuple[list[str], bool]:
    if words[:2] == ["-m", "sglang.launch_server"]:
        return words[2:], False
    if program.rsplit("/", 1)[-1] == "sglang" and words[:1] == ["serve"]:
        return words[1:], True
    raise UsageError(
        f"{shlex.join([program, *words[:2]])} starts no SGLang server",
        "sgl-tune reads `python -m sglang.launch_server ...` and `sglang serve ...`",
    )

"""A server command as somebody starts it, read as SGLang reads it.

    SGLANG_CACHE_DIR=/cache python -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B --tp 4

It is read by its release's own grammar: what that refuses is refused, and what no rule looks at is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from runtime.server.asked import Asked, changed
from runtime.server.errors import ConfigError
from runtime.server.flags import CommandLine, Parsed, parse
from runtime.server.flags.grammar import serve_words
from runtime.server.flags.spelling import line_of
from runtime.server.flags.types import JSON_TYPES
from runtime.server.releases import NEWEST, Release
from runtime.server.resolve import ENVIRONMENT
from sgl_tune.deployment.container import Container
from sgl_tune.deployment.hub_cache import HUB_ENVIRONMENT
from sgl_tune.deployment.launch import Launch, launch_of
from sgl_tune.deployment.server_config import with_config
from sgl_tune.deployment.shell_words import Word
from sgl_tune.deployment.stand_ins import stand_ins
from sgl_tune.deployment.unread import Unread
from sgl_tune.errors import UsageError

READ_ENVIRONMENT = (*ENVIRONMENT, "SGLANG_CACHE_DIR", *HUB_ENVIRONMENT)


@dataclass(frozen=True, slots=True)
class ServerCommandLine:
    asked: Asked
    environment: Mapping[str, str]
    dist_init_addr: str | None
    unread: Unread
    notes: tuple[str, ...] = ()
    container: Container | None = None
    revision: str | None = None


def parse_server_command(words: Sequence[str], release: Release = NEWEST) -> ServerCommandLine:
    return read_launch(launch_of(words), release)


def read_launch(launch: Launch, release: Release) -> ServerCommandLine:
    """By the release's own grammar."""
    try:
        line = line_of(release)
        parsed = parse(line, arguments_of(launch, line))
        _check_values(parsed)
        asked = changed(Asked(), parsed.given)
        notes = [*_deprecations(parsed), *_unopened_config(parsed, launch)]
    except ConfigError as error:
        raise UsageError(error.message, error.remedy) from error
    if launch.behind_router:
        asked = _behind_router(asked, notes)
    environment = {name: _value(name, word) for name, word in launch.environment.items()}
    others = {name: value for name, value in environment.items() if name not in READ_ENVIRONMENT}
    return ServerCommandLine(
        asked,
        environment,
        parsed.given.get("dist_init_addr"),
        Unread.of(parsed, others),
        tuple(notes),
        launch.container,
        parsed.given.get("revision"),
    )


def arguments_of(launch: Launch, line: CommandLine) -> list[str]:
    """As the release's parser gets them: its `--config` merged, `sglang serve` resolved."""
    words = stand_ins(line, launch.arguments)
    return with_config(line, serve_words(line, words) if launch.serve else words, launch.container)


def _value(name: str, word: Word) -> str:
    if word.expands and name in READ_ENVIRONMENT:
        raise UsageError(f"{name}={word[:200]}: {word.expands[:200]} is not expanded", "put its value")
    return str(word)


def _check_values(parsed: Parsed) -> None:
    """`--flag=--`: argparse takes the dashes away and calls it good, and the server dies of it later."""
    for name, value in parsed.given.items():
        flag = parsed.command_line.by_name[parsed.spelled[name]]
        if value == [] and flag.nargs is None and flag.type not in JSON_TYPES:
            raise UsageError(f"{parsed.spelled[name]}: expected one argument")


def _deprecations(parsed: Parsed) -> Iterator[str]:
    """With the value of the flag that the new one takes the place of, too."""
    for flag, instead in parsed.deprecated.items():
        replaced = [flag]
        for name in re.findall(r"<([a-z-]+)>", instead):
            field = name.replace("-", "_")
            if field in parsed.given:
                instead = instead.replace(f"<{name}>", str(parsed.given[field]))
                replaced.append(parsed.spelled[field])
        both = f" instead of {' and '.join(replaced)}" if len(replaced) > 1 else ""
        yield f"{flag} is deprecated in SGLang {parsed.command_line.release}: write {instead}{both}"


def _unopened_config(parsed: Parsed, launch: Launch) -> Iterator[str]:
    if "config" in parsed.given:
        yield f"--config={parsed.given['config']} is not opened: SGLang wants --config FILE, two words"


def _behind_router(asked: Asked, notes: list[str]) -> Asked:
    if asked.enable_dp_attention:
        raise UsageError(
            "sglang_router.launch_server with --enable-dp-attention is not followed",
            "paste the command of one server: python -m sglang.launch_server ...",
        )
    if asked.dp_size > 1:
        notes.append(f"sglang_router starts {asked.dp_size} servers of --dp-size 1, which share a cache")
    return replace(asked, dp_size=1)

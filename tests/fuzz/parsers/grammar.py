"""A server's command line, read by the grammar of each release, with all of its flags."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from runtime.server.errors import ConfigError
from runtime.server.flags import config_words, flags_of, parse
from tests.fuzz import nasty
from tests.fuzz.mutate import Words, mutated_words, of_json
from tests.fuzz.parser import Parser

_RELEASES = ("0.5.12", "0.5.18", "0.5.23")
_SEEDS: tuple[Words, ...] = (
    ("--model-path", "m", "--tp", "8", "--mem-fraction-static", "0.9", "--cuda-graph-bs", "1", "2", "4"),
    ("--model-path", "m", "--json-model-override-args", '{"a": {"b": [1]}}', "--context-length", "128k"),
    ("--model-path", "m", "--lora-paths", "a=b", '{"lora_name": "n", "lora_path": "p"}', "--enable-lora"),
    ("--model-path", "m", "--cuda-graph-config", '{"decode": {"max_bs": 64}, "prefill": {}}'),
)
_CONFIG = b'{"tp-size": 8, "model-path": "m", "trust-remote-code": true, "cuda-graph-bs": [1, 2], "port": 1}'


def _make(random: Random) -> tuple[str, Any]:
    release = random.choice(_RELEASES)
    if random.random() < 0.2:
        try:
            config = json.loads(of_json(_CONFIG, random))
        except (ValueError, RecursionError):
            config = None
        return release, config if isinstance(config, dict) else {"tp-size": config}
    names = [name for flag in flags_of(release).flags for name in flag.names if len(name) > 2]
    words = list(mutated_words(_SEEDS, names, random))
    if words and random.random() < 0.3:
        raw = random.choice((of_json(b'{"decode": {"max_bs": 64}}', random), random.choice(nasty.RAW)))
        words[random.randrange(len(words))] = raw.decode("utf-8", "surrogateescape").replace("\0", "")
    return release, tuple(words)


def _read(made: tuple[str, Any], folder: Path) -> None:
    release, given = made
    command_line = flags_of(release)
    words = config_words(command_line, given) if isinstance(given, dict) else given
    parse(command_line, words, serve=len(words) % 2 == 0)


PARSER = Parser(_make, _read, ours=(ConfigError,))

"""`--config FILE` of a server command: its words stand before the command's own, as SGLang merges them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runtime.server.errors import ConfigError
from runtime.server.flags import CommandLine, config_words
from sgl_tune.deployment.container import Container
from sgl_tune.deployment.yaml_text import LARGEST, read_yaml
from sgl_tune.errors import UsageError
from sgl_tune.reading import read_text

_WHERE = "it is the server command's --config: run this where it lies, or write its flags on the line"


def with_config(line: CommandLine, words: Sequence[str], container: Container | None) -> list[str]:
    """Only two words are a file to SGLang: `--config=FILE` it takes and never opens."""
    found = [index for index, word in enumerate(words) if word == "--config"]
    if not found:
        return list(words)
    if len(found) > 1:
        raise UsageError("the server command has --config twice, and SGLang takes one", "merge the files")
    at = found[0]
    if at + 1 == len(words):
        raise UsageError("the server command ends with --config, and names no file")
    return [*_file_words(line, words[at + 1], container), *words[:at], *words[at + 2 :]]


def _file_words(line: CommandLine, name: str, container: Container | None) -> list[str]:
    file = Path(name)
    if file.suffix.lower() not in (".yaml", ".yml"):
        raise UsageError(f"--config {name}: SGLang reads .yaml and .yml alone", "rename the file")
    if container is not None:
        outside = container.outside(name)
        if outside is None:
            raise UsageError(
                f"--config {name} lies inside of the container", "mount it, or write its flags on the line"
            )
        file = Path(outside)
    documents = read_yaml(read_text(file, _WHERE, LARGEST), str(file)) or [None]
    if len(documents) > 1:
        raise UsageError(f"{file} holds {len(documents)} documents, and SGLang reads one")
    config = {} if documents[0] is None else documents[0]
    if not isinstance(config, dict):
        raise UsageError(f"{file} holds a {type(config).__name__}: SGLang wants a mapping of flags")
    for key in config:
        if not isinstance(key, str):
            raise UsageError(f"{file}: the key {key!r} is no name of a flag", "quote it")
    try:
        return config_words(line, config)
    except ConfigError as error:
        raise UsageError(f"{file}: {error.message}", "write that flag on the command line") from error

"""What a server's --config file says, as words of its command line. Reading the file is the caller's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from runtime.server.flags.grammar import Refused
from runtime.server.flags.table import CommandLine, Flag


def config_words(command_line: CommandLine, config: Mapping[str, Any]) -> list[str]:
    """They stand before the command's own words, so that those win. Keys become flags as they are written."""
    switches = {key for flag in command_line.flags if _is_switch(flag) for key in _keys(command_line, flag)}
    refused = _refused_keys(command_line)
    words: list[str] = []
    for key, value in config.items():
        name = key.replace("-", "_")
        if name in refused:
            reason = f"Unsupported config option '{name}' with action '{refused[name].action}'"
            raise Refused(command_line.release, reason, None, [])
        try:
            words += _words(command_line, key, value, name in switches)
        except (TypeError, ValueError, RecursionError) as error:  # a date in JSON, digits without end
            raise Refused(command_line.release, f"config option '{name}': {error}", None, []) from None
    return words


def _words(command_line: CommandLine, key: str, value: Any, is_switch: bool) -> Iterator[str]:
    if isinstance(value, bool) and is_switch:
        yield from [f"--{key}"] if value else []
    elif isinstance(value, bool):
        yield from (f"--{key}", str(value).lower())
    elif isinstance(value, list):
        yield from [f"--{key}", *map(str, value)] if value else []
    elif isinstance(value, dict) and command_line.config_dicts_are_json:
        yield from (f"--{key}", json.dumps(value))
    else:
        yield from (f"--{key}", str(value))


def _is_switch(flag: Flag) -> bool:
    return flag.action == "set" and flag.instead is None


def _keys(command_line: CommandLine, flag: Flag) -> set[str]:
    if not command_line.config_keys_are_names:
        return {flag.field}
    return {flag.field} | {name[2:].replace("-", "_") for name in flag.names if name.startswith("--")}


def _refused_keys(command_line: CommandLine) -> dict[str, Flag]:
    """Flags that are neither a plain value nor a plain switch."""
    usable = [flag for flag in command_line.flags if _is_usable(command_line, flag)]
    read = {key for flag in usable for key in _keys(command_line, flag)}
    if not command_line.config_keys_are_names:
        read = set()  # there, a field that another flag sets too is refused
    others = [flag for flag in command_line.flags if not _is_usable(command_line, flag)]
    return {key: flag for flag in others for key in _keys(command_line, flag) if key not in read}


def _is_usable(command_line: CommandLine, flag: Flag) -> bool:
    plain_value = flag.action == "store" and flag.instead is None
    renamed_value = command_line.config_keys_are_names and flag.takes_value and flag.nargs is None
    return plain_value or renamed_value or _is_switch(flag)

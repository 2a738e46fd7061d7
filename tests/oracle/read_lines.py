"""Runs in the oracle's interpreter: what a release's own parser makes of command lines, a line each."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, NoReturn

from tests.oracle.inside import enter, keep_output
from tests.oracle.read_flags import plain_value, renamed_fields


class _Stop(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Stop(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise _Stop("help")


def main() -> None:
    enter()
    out = keep_output()
    from sglang.srt.server_args import ServerArgs

    parser = _Parser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    renamed = renamed_fields(ServerArgs)
    for line in sys.stdin:
        out.write(json.dumps(_answer(parser, renamed, json.loads(line))) + "\n")
    out.flush()


def _answer(parser: _Parser, renamed: dict[str, str], words: list[str]) -> Any:
    """The server arguments that are not their default, or the reason why there are none."""
    try:
        asked = vars(parser.parse_args(words))
    except _Stop as refusal:
        return {"refused": str(refusal)}
    except Exception as crash:
        return {"refused": f"{type(crash).__name__}"}
    defaults = {action.dest: action.default for action in reversed(parser._actions)}
    return {
        renamed.get(name, name): plain_value(value)
        for name, value in asked.items()
        if plain_value(value) != plain_value(defaults.get(name))
    }


if __name__ == "__main__":
    main()

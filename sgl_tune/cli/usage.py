"""click's complaints about a command line, told as every other error is: the name, the value, the way out."""

from __future__ import annotations

import re
import shlex
import sys
from typing import Any

from runtime.server.nearest import meant
from sgl_tune.cli.moved import divided, replacement, takes_command
from sgl_tune.errors import UsageError

_MOST = 20
_STARTS_A_SERVER = re.compile(r"(?:.*/)?(?:python[\d.]*|sglang|docker|podman|kubectl|torchrun|uv|bash|sh)")


def told(error: Any) -> UsageError:
    context: Any = getattr(error, "ctx", None)
    command = context.command_path if context else "sgl-tune"
    helps = f"`{command} --help` lists what there is"
    kind = type(error).__name__
    if kind == "NoSuchOption":
        own = (name for param in context.command.params for name in param.opts if name.startswith("--"))
        hint = (
            _undivided(context)
            or replacement(context, error.option_name)
            or meant(error.option_name, own)
            or divided(context, sys.argv[1:], error.option_name)
            or helps
        )
        return UsageError(f"{error.option_name}: `{command}` has no such option", hint)
    if kind == "BadOptionUsage" and "requires" in error.message:
        return UsageError(f"{error.option_name} needs a value", _values(context, error.option_name) or helps)
    if kind == "MissingParameter":
        return UsageError(f"{_name(error.param)} is missing", helps)
    if kind == "BadParameter" and error.param is not None:
        return UsageError(f"{_name(error.param)}: {_plain(error.message)}", _nearest(error) or helps)
    return UsageError(_plain(error.format_message()), helps)


def _undivided(context: Any) -> str | None:
    """A server's command whose `--` was forgotten: its flags are read as ours."""
    words = sys.argv[1:]
    at = next((i for i, word in enumerate(words) if _STARTS_A_SERVER.fullmatch(word)), None)
    if at is None or "--" in words or not takes_command(context):
        return None
    return f"write -- before the server's command: `{context.command_path} -- {shlex.quote(words[at])} ...`"


def _name(param: Any) -> str:
    """As it is typed: the shortest spelling of an option; an argument by its place."""
    spellings = [name for name in getattr(param, "opts", ()) if name.startswith("-")]
    return str(min(spellings, key=len) if spellings else param.human_readable_name)


def _plain(message: str) -> str:
    text = message.rstrip(".")
    return text[:1].lower() + text[1:]


def _values(context: Any, option: str) -> str | None:
    """What the option is known to take: what completion offers, else its metavar."""
    param = next((p for p in context.command.params if option in getattr(p, "opts", ())), None)
    if param is None:
        return None
    offered = [item.value for item in param.shell_complete(context, "")]
    if offered:
        return f"one of {', '.join(offered[:_MOST])}{' ...' if len(offered) > _MOST else ''}"
    return f"write {option} {param.metavar}" if param.metavar else None


def _nearest(error: Any) -> str | None:
    """`'jsn' is not one of 'human', 'json'`: the one that was meant."""
    quoted = re.findall(r"'([^']*)'", error.message)
    return meant(quoted[0], quoted[1:]) if len(quoted) > 2 else None

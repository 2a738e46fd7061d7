"""Reword click's usage errors like all other errors: the option, the value, and what to write instead."""

import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from runtime.server.nearest import meant
from sgl_tune.errors import UsageError

_MOST = 20
_STARTS_A_SERVER = re.compile(r"(?:.*/)?(?:python[\d.]*|sglang|docker|podman|kubectl|torchrun|uv|bash|sh)")
_START = ["python", "-m", "sglang.launch_server"]
_ONE_NODE = (
    "one node warms for all: sgl-tune warm ... && sgl-tune pack -o cache.tar.gz; on each other node:"
    " sgl-tune unpack cache.tar.gz"
)
_BY_VERIFY = "doctor judges this machine's server with its own folders; `sgl-tune verify` takes this option"
_REPLACED = {
    "doctor --gpu": _BY_VERIFY,
    "doctor --cache-dir": _BY_VERIFY,
    "doctor --model-config": _BY_VERIFY,
    "warm --nnodes": _ONE_NODE,
    "warm --node-rank": _ONE_NODE,
    "warm --gpus": "set CUDA_VISIBLE_DEVICES",
    "warm --workers": "leave it out: one process searches on the CPU, and one on each GPU",
    "warm --no-prove": "write --prove none",
    "warm --module": "leave it out: all modules that the start loads are compiled",
    "warm --jobs": "set MAX_JOBS, as for FlashInfer itself",
    "verify --timeout": "leave it out",
    "inspect --sort": "--filter 'size>1GB' or 'age>30d' narrows the list",
    "inspect --limit": "--filter narrows the list; `| head` cuts it off",
    "export --timeout": "leave it out",
    "explain --all": "--format json has every argument",
    "explain --against-gpu": "write --against GPU",
    "mem-report --from": "write --log FILE",
    "mem-report --from-log": "write --log FILE",
    "start-report --log": "write the log without a flag: `sgl-tune start-report FILE`",
    "mem-report --fast": "leave it out: equal layers are folded; --no-fold runs each of them",
    "prune --arch": "write --library arch=sm90",
    "prune --flashinfer-version": "write --library flashinfer=X.Y.Z",
    "prune --unused-for": "write --older-than AGE: few file systems note when files are read",
    "relocate --read-only": "--scratch PATH says that the root is read-only, and where the server writes",
    "--arch": "--gpu takes an architecture, too: --gpu sm90",
    "--core": "write --server core",
    "--sglang-version": "write --server X.Y.Z",
    "--flashinfer-version": "--target ENV.JSON names the FlashInfer that reads the files",
    "--deployment": "write -f sgl-tune.toml:NAME",
    "--no-enable-dp-attention": "leave out --enable-dp-attention",
}


def told(error: Any) -> UsageError:
    context: Any = getattr(error, "ctx", None)
    command, kind = context.command_path if context else "sgl-tune", type(error).__name__
    is_servers = getattr(getattr(error, "param", None), "hidden", False)
    helps = f"`{command} --help{'-server' * is_servers}` lists what there is"
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
        examples = re.findall(r"Example: .+", context.command.help or "")
        return UsageError(f"{_name(error.param)} is missing", [*examples, helps][0])
    if kind == "BadParameter" and error.param is not None:
        return UsageError(f"{_name(error.param)}: {_plain(error.message)}", _nearest(error) or helps)
    return UsageError(_plain(error.format_message()), helps)


def _undivided(context: Any) -> str | None:
    """If the user forgot `--` before a server command, return the advice to add it."""
    words = sys.argv[1:]
    at = next((i for i, word in enumerate(words) if _STARTS_A_SERVER.fullmatch(word)), None)
    if at is None or "--" in words or not takes_command(context):
        return None
    return f"write -- before the server's command: `{context.command_path} -- {shlex.quote(words[at])} ...`"


def _name(param: Any) -> str:
    """Return the parameter's name as it is typed: an option's shortest spelling, or an argument's name."""
    spellings = [name for name in getattr(param, "opts", ()) if name.startswith("-")]
    return str(min(spellings, key=len) if spellings else param.human_readable_name)


def _plain(message: str) -> str:
    return message[:1].lower() + message[1:].rstrip(".")


def _values(context: Any, option: str) -> str | None:
    """Return the values that the option accepts: those that completion offers, else its metavar."""
    param = next((p for p in context.command.params if option in getattr(p, "opts", ())), None)
    if param is None:
        return None
    offered = [item.value for item in param.shell_complete(context, "")]
    if offered:
        return f"one of {', '.join(offered[:_MOST])}{' ...' if len(offered) > _MOST else ''}"
    return f"write {option} {param.metavar}" if param.metavar else None


def _nearest(error: Any) -> str | None:
    """Return the choice nearest to the value in an error such as `'jsn' is not one of 'human', 'json'`."""
    quoted = re.findall(r"'([^']*)'", error.message)
    return meant(quoted[0], quoted[1:]) if len(quoted) > 2 else None


def replacement(context: Any, option: str) -> str | None:
    """Return what to write in place of an option that the command had in an older release."""
    general = _REPLACED.get(option) if takes_command(context) else None
    return _REPLACED.get(f"{context.info_name} {option}") or general


def divided(context: Any, typed: Sequence[str], option: str) -> str | None:
    """Return the same command line with the options that are not ours moved behind `--`."""
    name = context.command.name
    if not takes_command(context) or not option.startswith("--"):
        return None
    words = list(typed[typed.index(name) + 1 :]) if name in typed else []
    at = words.index("--") if "--" in words else len(words)
    if any(word.partition("=")[0] in ("-f", "--file") for word in words[:at]):
        return f"write {option} into the file that -f names: the server's flags are there"
    ours, flags = _parted(context, words[:at])
    whole = words[at + 1 :]
    if len(whole) == 1 and " " in whole[0]:
        whole = [f"{whole[0]} {shlex.join(flags)}"]
    elif whole:
        whole += flags
    else:
        has_model = {"--model", "--model-path"} & {word.partition("=")[0] for word in flags}
        whole = [*_START, *([] if has_model else ["--model-path", "MODEL"]), *flags]
    moved = shlex.join([*context.command_path.split(), *ours, "--", *whole])
    return f"put the server's flags after --: {moved}"


def takes_command(context: Any) -> bool:
    return any("SERVER COMMAND" in (param.metavar or "") for param in context.command.params)


def _parted(context: Any, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split words into our own options with their values, and everything else."""
    params = [one for one in context.command.params if not one.hidden or "--quiet" in one.opts]
    shown = {name: one for one in params for name in one.opts}
    ours, server = list[str](), list[str]()
    current, takes_value = ours, False
    for word in words:
        name = word.partition("=")[0]
        if word.startswith("-") and not takes_value:
            own = shown.get(name)
            current = server if own is None else ours
            takes_value = own is not None and not own.is_flag and "=" not in word
        else:
            takes_value = False
        current.append(word)
    return ours, server

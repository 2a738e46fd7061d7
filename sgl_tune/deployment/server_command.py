"""A server command as somebody starts it, read as SGLang reads it.

    SGLANG_CACHE_DIR=/cache python -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B --tp 4

What decides a cache becomes flags and environment; the rest is named as without effect on it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgl_tune.deployment.options import TARGET_FIELDS, ServerFlags, flag_names, flag_types
from sgl_tune.errors import UsageError

READ_ENVIRONMENT = (
    "SGLANG_CACHE_DIR",
    "SGLANG_FLASHINFER_AUTOTUNE_EXTEND",
    "SGLANG_FLASHINFER_MOE_FUSED_FINALIZE",
    "HF_HOME",
    "HF_HUB_CACHE",
)
# These change shapes, ranks or keys in ways that are not followed here.
NOT_FOLLOWED = frozenset(
    (
        "--attn-cp-size",
        "--attention-context-parallel-size",
        "--dcp-size",
        "--decode-context-parallel-size",
        "--disable-shared-experts-fusion",
        "--enable-deterministic-inference",
        "--enable-dynamic-chunking",
        "--enable-prefill-cp",
        "--ep-num-redundant-experts",
        "--flashinfer-mxfp4-moe-precision",
        "--json-model-override-args",
        "--moe-data-parallel-size",
        "--moe-dp-size",
        "--speculative-draft-model-quantization",
        "--speculative-moe-a2a-backend",
        "--speculative-moe-runner-backend",
    )
)
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"-\d+(\.\d+)?")
_COUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)(Ki|Mi|Gi|Ti|k|M|G|T)")
_SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SUFFIXES |= {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


@dataclass(frozen=True, slots=True)
class ServerCommandLine:
    flags: ServerFlags
    environment: Mapping[str, str]
    without_effect: tuple[str, ...]
    not_followed: tuple[str, ...]


def parse_server_command(words: Sequence[str]) -> ServerCommandLine:
    """`words` as a shell passes them, or one quoted string of them."""
    if len(words) == 1 and " " in words[0].strip():
        words = _split(words[0])
    environment, arguments = _split_program(list(words))
    values: dict[str, Any] = {}
    ignored, not_followed = [], []
    for name, given in _options(arguments):
        field = _field_of(name)
        if field is not None:
            values[field] = _value(field, name, given)
        elif name in NOT_FOLLOWED:
            not_followed.append(shlex.join([name, *given]))
        else:
            ignored.append(shlex.join([name, *given]))
    unread = [f"{name}={value}" for name, value in environment.items() if name not in READ_ENVIRONMENT]
    return ServerCommandLine(ServerFlags(**values), environment, (*unread, *ignored), tuple(not_followed))


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


def _split_program(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Assignments before the program, and its arguments. Bare flags are taken as a server's."""
    environment: dict[str, str] = {}
    while words and not words[0].startswith("-"):
        word = words.pop(0)
        assignment = _ASSIGNMENT.fullmatch(word)
        if assignment:
            environment[assignment[1]] = assignment[2]
        elif word.rsplit("/", 1)[-1] in ("env", "exec"):
            continue
        elif _is_program(word):
            return environment, _server_arguments(word, words)
        else:
            raise UsageError(
                f"after -- stands {word!r}, which starts no SGLang server",
                "paste the whole command: python -m sglang.launch_server --model-path ...",
            )
    return environment, words


def _server_arguments(program: str, words: list[str]) -> list[str]:
    if words[:2] == ["-m", "sglang.launch_server"]:
        return words[2:]
    if program.rsplit("/", 1)[-1] == "sglang" and words[:1] == ["serve"]:
        rest = words[1:]
        return ["--model-path", *rest] if rest and not rest[0].startswith("-") else rest
    raise UsageError(
        f"{shlex.join([program, *words[:2]])} starts no SGLang server",
        "sgl-tune reads `python -m sglang.launch_server ...` and `sglang serve ...`",
    )


def _options(arguments: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Each flag with the words up to the next one."""
    name, given = None, []
    for word in arguments:
        if word.startswith("--"):
            if name is not None:
                yield name, given
            name, _, value = word.partition("=")
            given = [value] if "=" in word else []
        elif name is None or (word.startswith("-") and not _NUMBER.fullmatch(word)):
            raise UsageError(f"the server command has {word!r} where a flag should be")
        else:
            given.append(word)
    if name is not None:
        yield name, given


def _field_of(name: str) -> str | None:
    """By its full name, or by a beginning that fits one flag only, as argparse allows."""
    if name == "--config":
        raise UsageError(
            "the server command's --config file is not read", "write its flags on the command line"
        )
    names = {known: field for known, field in flag_names().items() if field not in TARGET_FIELDS}
    if name in flag_names() and name not in names:
        raise UsageError(f"{name} is sgl-tune's and no server flag", "put it before --")
    if name in names:
        return names[name]
    fitting = {field for known, field in names.items() if known.startswith(name)}
    return fitting.pop() if len(fitting) == 1 and name not in NOT_FOLLOWED else None


def _value(field: str, name: str, given: list[str]) -> Any:
    kind = flag_types()[field]
    if kind is bool:
        if given:
            raise UsageError(f"{name} takes no value, and has {given[0]!r}")
        return True
    if kind is list:
        return given
    if len(given) != 1:
        raise UsageError(f"{name} takes one value, and has {len(given)}")
    return _number(kind, name, given[0]) if kind in (int, float) else given[0]


def _number(kind: type, name: str, text: str) -> int | float:
    count = _COUNT.fullmatch(text) if name == "--context-length" else None
    if count:
        return int(float(count[1]) * _SUFFIXES[count[2]])
    try:
        number: int | float = kind(text)
    except ValueError:
        raise UsageError(f"{name} {text!r} is not a number") from None
    return number

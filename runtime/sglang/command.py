"""A pasted server command, which nobody vouches for: the part of it that a start on this machine may get.

The cage in which a start runs shuts off the network, other files and other code. Here the flags and variables
that need these are refused or dropped by name, so that the answer says why.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.sglang.flag_classes import (
    ADDRESSES,
    DROPPED,
    FILES,
    MODELS,
    OVERRIDES_REFUSED,
    REFUSED,
    WHOLE_NAMES,
)
from runtime.sglang.variables import Left, left_out, passed

_TRUST = "--trust-remote-code"
_OVERRIDE = "--json-model-override-args"
_LORA = "--lora-paths"
_LARGEST_CONFIG = 8 << 20
_LONGEST_VALUE = 64 << 10
_DEEPEST = 60
_HANDLED = (*REFUSED, *DROPPED, *MODELS, *FILES, *ADDRESSES, _TRUST, _OVERRIDE, _LORA)
_NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_CODE_LISTS = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")


class Refused(ValueError):
    """A part of a server command that is not run, and the way out."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


@dataclass(frozen=True)
class Checked:
    """A checked command. `readable`: the data that flags name; `remote_code`: the model's code may run."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    model: Path
    readable: tuple[Path, ...] = ()
    left: tuple[Left, ...] = ()
    remote_code: bool = False


@dataclass(frozen=True)
class _Flag:
    """A flag as written: its name, its values, and whether the first value was joined with "="."""

    name: str
    values: tuple[str, ...] = ()
    joined: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        if self.joined:
            return (f"{self.name}={self.values[0]}", *self.values[1:])
        return (self.name, *self.values)


def checked(
    argv: Sequence[str], environment: Mapping[str, str], *, trust_remote_code: bool = False
) -> Checked:
    """Return the flags and variables to start SGLang with. `trust_remote_code` is sgl-tune's own flag.

    Raises Refused for a command that asks to run, import, fetch or write something.
    """
    words: list[str] = []
    readable: list[Path] = []
    left: list[Left] = []
    model: Path | None = None
    asks_for_code = False
    for flag in _flags(argv):
        _refuse(flag)
        if flag.name in DROPPED:
            left.append(Left(flag.name, DROPPED[flag.name]))
        elif flag.name == _TRUST:
            asks_for_code = True
        elif flag.name in MODELS:
            folder = _model_folder(flag)
            readable.append(folder)
            words += (flag.name, str(folder))
            if flag.name in ("--model-path", "--model"):
                model = folder
        else:
            kept, files = _kept(flag)
            words += kept
            readable += files
    if model is None:
        raise Refused("the server command names no model", "add --model-path FOLDER")
    runs_code = asks_for_code and trust_remote_code
    if runs_code:
        words.append(_TRUST)
    elif asks_for_code and (files_of_code := _own_code(readable)):
        left.append(
            Left(_TRUST, f"{files_of_code[0]} is the model's own code: {_TRUST} before -- runs it", True)
        )
    given = (*left, *left_out(environment))
    return Checked(tuple(words), passed(environment), model, tuple(readable), given, runs_code)


def _flags(argv: Sequence[str]) -> Iterator[_Flag]:
    name, values, joined = "", list[str](), False
    for word in argv:
        if len(word) > _LONGEST_VALUE or "\0" in word:
            raise Refused(
                f"a word of the server command is longer than {_LONGEST_VALUE >> 10} KiB", "shorten it"
            )
        if word.startswith("-") and not _NUMBER.fullmatch(word):
            if name:
                yield _Flag(name, tuple(values), joined)
            name, equals, value = word.partition("=")
            values, joined = ([value], True) if equals else ([], False)
            if not name.startswith("--"):
                raise Refused(f"{name} is no flag of a server", "leave it out")
        elif not name:
            raise Refused(f"the server command begins with {word[:80]!r}, which is no flag", "leave it out")
        else:
            values.append(word)
    if name:
        yield _Flag(name, tuple(values), joined)


def _refuse(flag: _Flag) -> None:
    if flag.name in REFUSED:
        raise Refused(f"{flag.name} of the server command is refused: {REFUSED[flag.name]}", "leave it out")
    if flag.name not in WHOLE_NAMES and flag.name not in _HANDLED:
        whole = next((one for one in _HANDLED if one.startswith(flag.name)), None)
        if whole is not None:
            raise Refused(f"{flag.name} is short for {whole}", "write the flag's whole name")


def _kept(flag: _Flag) -> tuple[tuple[str, ...], list[Path]]:
    """Return the words of a flag that is passed on, and the files that they name."""
    if flag.name == _OVERRIDE:
        _check_override(flag)
    if flag.name == _LORA:
        return _adapters(flag)
    if flag.name in FILES:
        return _file(flag)
    if flag.name in ADDRESSES:
        return (flag.name, f"127.0.0.1:{_port(flag)}"), []
    for value in flag.values:
        if _ADDRESS.match(value):
            raise Refused(
                f"{flag.name} of the server command names an address, {value[:80]}",
                "nothing is fetched: leave it out",
            )
    return flag.words, []


def _port(flag: _Flag) -> int:
    port = (flag.values or ("",))[-1].rpartition(":")[2]
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise Refused(f"{flag.name} has no port at its end", "write HOST:PORT")
    return int(port)


def _model_folder(flag: _Flag) -> Path:
    if len(flag.values) != 1 or not flag.values[0]:
        raise Refused(f"{flag.name} of the server command names no folder", "name one")
    value = flag.values[0]
    folder = Path(os.path.abspath(value))  # noqa: PTH100 links stay as they are: a hub's cache has them
    if _ADDRESS.match(value) or not folder.is_dir():
        raise Refused(
            f"{flag.name} {value[:200]} is no folder of this machine", "nothing is downloaded: name a folder"
        )
    _read_object(folder / "config.json")
    return folder


def _read_object(path: Path) -> dict[str, Any]:
    """Read a file of a model's folder; it must be an object of bounded size and depth."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Refused(f"{path} is no regular file", "name a model's folder")
            data = file.read(_LARGEST_CONFIG + 1)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}", "name a model's folder") from error
    if len(data) > _LARGEST_CONFIG:
        raise Refused(f"{path} is larger than {_LARGEST_CONFIG >> 20} MiB", "no model's config is as large")
    return _object(data, str(path))


def _object(text: str | bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{what} is no JSON: {str(error)[:200]}", "repair it") from error
    if not isinstance(value, dict):
        raise Refused(f"{what} holds a {type(value).__name__}, and a mapping is needed", "repair it")
    if _is_deeper(value, _DEEPEST):
        raise Refused(f"{what} is nested deeper than {_DEEPEST} levels", "repair it")
    return value


def _is_deeper(value: object, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [
            inner
            for one in layer
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(layer)


def _check_override(flag: _Flag) -> None:
    override = _object("".join(flag.values) or "{}", flag.name)
    layer: list[object] = [override]
    while layer:
        one = layer.pop()
        if isinstance(one, dict):
            for name in one.keys() & OVERRIDES_REFUSED:
                raise Refused(f"{flag.name} sets {name}, which names code or another model", "leave it out")
            layer += one.values()
        elif isinstance(one, list):
            layer += one


def _adapters(flag: _Flag) -> tuple[tuple[str, ...], list[Path]]:
    """Make the path in `PATH`, `NAME=PATH` or an object's `lora_path` absolute; return words and folders."""
    words, folders = [flag.name], list[Path]()
    for value in flag.values:
        if value.startswith("{"):
            told = _object(value, flag.name)
            folders.append(_adapter(flag, str(told.get("lora_path", ""))))
            words.append(json.dumps({**told, "lora_path": str(folders[-1])}))
        else:
            name, equals, path = value.rpartition("=")
            folders.append(_adapter(flag, path))
            words.append(f"{name}{equals}{folders[-1]}" if equals else f"{value}={folders[-1]}")
    return tuple(words), folders


def _adapter(flag: _Flag, value: str) -> Path:
    folder = Path(os.path.abspath(value))  # noqa: PTH100
    if not value or _ADDRESS.match(value) or not folder.is_dir():
        raise Refused(f"{flag.name}: {value[:200]!r} is no folder of this machine", "nothing is downloaded")
    _read_object(folder / "adapter_config.json")
    if not any(folder.glob("*.safetensors")):
        raise Refused(f"{flag.name}: {folder} holds no safetensors", "no pickled weights are read")
    return folder


def _file(flag: _Flag) -> tuple[tuple[str, ...], list[Path]]:
    words, files = [flag.name], list[Path]()
    for value in flag.values:
        looks_like_a_path = "/" in value and not value.lstrip().startswith(("{", "["))
        if _ADDRESS.match(value) or (looks_like_a_path and not Path(value).exists()):
            raise Refused(f"{flag.name} {value[:200]} is no file of this machine", "nothing is downloaded")
        if Path(value).is_file():
            files.append(Path(os.path.abspath(value)))  # noqa: PTH100
            words.append(str(files[-1]))
        elif looks_like_a_path:
            raise Refused(f"{flag.name} {value[:200]} is no regular file", "name a file")
        else:
            words.append(value)
    return tuple(words), files


def _own_code(folders: Sequence[Path]) -> list[Path]:
    """Return the model's own code files that its configs name."""
    found = []
    for folder in folders:
        for name in _CODE_LISTS:
            if not (folder / name).is_file():
                continue
            mapped = _read_object(folder / name).get("auto_map")
            for target in mapped.values() if isinstance(mapped, dict) else ():
                module = str(target[0] if isinstance(target, list) and target else target)
                found.append(folder / f"{module.rpartition('--')[2].partition('.')[0]}.py")
    return found

"""Reads the build file beside a module: its sources, and the folders of their headers."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

SOURCES = {".cu", ".cpp", ".cc", ".cxx", ".c"}
FILE = "build.ninja"


class Build(NamedTuple):
    sources: tuple[Path, ...]
    folders: tuple[Path, ...]
    definitions: tuple[str, ...]  # names that the command line defines


def build_of(module: Path) -> Build | None:
    """Return how a module would be built, or None if no file says so."""
    try:
        text = (module.parent / FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    text = text.replace("$\n", " ")
    variables: dict[str, str] = {}
    for name, value in re.findall(r"^[ \t]*(\w+)[ \t]*=[ \t]*(.*)$", text, re.MULTILINE):
        variables[name] = f"{variables.get(name, '')} {value}".strip() if "flags" in name else value.strip()
    sources = _sources(text, variables, module.parent)
    words = _words(" ".join(_filled(value, variables) for value in variables.values()))
    folders, defined = [], []
    for at, word in enumerate(words):
        if word in ("-isystem", "-I", "-iquote") and at + 1 < len(words):
            folders.append(Path(words[at + 1]))
        elif word.startswith(("-I", "-isystem")):
            folders.append(Path(word.removeprefix("-isystem").removeprefix("-I")))
        elif word.startswith("-D"):
            defined.append(word[2:].split("=")[0])
    return Build(tuple(sources), tuple(dict.fromkeys(folders)), tuple(dict.fromkeys(defined)))


def _sources(text: str, variables: dict[str, str], folder: Path) -> list[Path]:
    found = []
    for inputs in re.findall(r"^build\s+(?:\$.|[^:$\n])+:\s*\S+\s+(.*)$", text, re.MULTILINE):
        for word in _filled(inputs, variables).replace("$ ", " ").replace("$:", ":").split():
            if Path(word).suffix in SOURCES:
                found.append(folder / word)
    return list(dict.fromkeys(found))


def _filled(text: str, variables: dict[str, str]) -> str:
    for _ in range(len(variables)):
        filled = re.sub(r"\$\{?(\w+)\}?", lambda match: variables.get(match[1], ""), text)
        if filled == text:
            break
        text = filled
    return text


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()

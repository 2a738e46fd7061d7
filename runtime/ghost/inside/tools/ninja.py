"""Writes the libraries of a build file as empty files, and keeps those that exist."""

import os
import re
import sys
from pathlib import Path


def outputs(text: str) -> list[str]:
    """Return the shared libraries that a build file makes, with its variables filled in."""
    text = text.replace("$\n", " ")
    variables = dict(re.findall(r"^(\w+)\s*=\s*(.*)$", text, re.MULTILINE))
    found = []
    for name in re.findall(r"^build\s+((?:\$.|[^\s:$])+)\s*:", text, re.MULTILINE):
        filled = re.sub(r"\$\{?(\w+)\}?", lambda match: variables.get(match[1], match[0]), name)
        filled = filled.replace("$:", ":").replace("$ ", " ")
        if filled.endswith(".so"):
            found.append(filled)
    return found


def main(arguments: list[str]) -> None:
    folder = arguments[arguments.index("-C") + 1] if "-C" in arguments else "."
    file = arguments[arguments.index("-f") + 1] if "-f" in arguments else "build.ninja"
    os.chdir(folder)
    for name in outputs(Path(file).read_text(encoding="utf-8")):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()


if __name__ == "__main__":
    main(sys.argv[1:])

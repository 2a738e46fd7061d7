"""A shell's text as the commands that it is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_OPENS, _CLOSES = re.compile(r"(?:if|for|while|case)\b"), re.compile(r"(?:^|;\s*)(?:fi|done|esac)\b")
_BLOCK = re.compile(r"(?:(?<=\n\n)|\A)(?: {4,}[^\n]*\n|\n(?= {4}))+")
_CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
_COMMENT = re.compile(r"\s{2,}#\s.*$")
_INLINE = re.compile(r"`(pip install [^`]+)`")
_WORDS = ("sgl-tune", "pip", "openssl", "cosign", "base64", "for", "mv")


def statements(script: str) -> list[str]:
    """Lines that go on are joined; what is between `for` and `done` is one."""
    found: list[str] = []
    open_ = False
    for line in re.sub(r"\\\n\s*", "", script).splitlines():
        line = _COMMENT.sub("", line).rstrip()
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if open_:
            found[-1] += f"\n{line}"
        else:
            found.append(line)
            open_ = bool(_OPENS.match(line))
        open_ = open_ and not _CLOSES.search(line)
    return found


def of_page(page: Path) -> Iterator[str]:
    """Those of its blocks, and the packages that its sentences install, where each stands."""
    text = page.read_text()
    places = [(found.start(), found[1]) for found in _INLINE.finditer(text)]
    for found in _BLOCK.finditer(text):
        block = re.sub(r"^ {4}", "", found[0], flags=re.MULTILINE)
        places += [(found.start(), block)] if block.split()[:1] and block.split()[0] in _WORDS else []
    for found in _CONSOLE.finditer(text):
        typed = re.findall(r"^\$ (.*(?:\\\n> .*)*)$", found[1], re.MULTILINE)
        places += [(found.start(), line) for line in typed]
    for _, block in sorted(places):
        yield from statements(block)

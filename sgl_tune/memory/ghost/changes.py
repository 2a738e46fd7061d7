"""Other starts of the same server: `dp=4`, `tp=4+ep=4`, `SGLANG_X=1`, `gpu=b200`, `sglang=0.5.23`; sweeps."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sgl_tune.asking.question import Question, gpu_of, with_flag
from sgl_tune.errors import UsageError
from sgl_tune.memory.what_if import BEHAVIOURS, NO_GRAPHS, sweep_values
from sgl_tune.servers.server import NoServer, find_server

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_FLAG = re.compile(r"[a-z][a-z0-9-]*")
_WRITE = "write a flag as dp=4, a variable as SGLANG_X=1, gpu=b200 or sglang=0.5.23; join with +"


@dataclass(frozen=True, slots=True)
class Change:
    """`parts`: names, each with the value that was written behind its `=`."""

    name: str
    parts: tuple[tuple[str, str | None], ...]

    def of(self, question: Question) -> Question:
        """The question with every part changed."""
        for name, value in self.parts:
            question = _changed(question, name, value)
        return question


def parse_change(text: str) -> Change:
    """Parts joined by `+` are one start that differs in all of them."""
    parts: list[tuple[str, str | None]] = []
    for part in text.split("+"):
        name, equals, value = part.partition("=")
        if part in BEHAVIOURS:
            raise UsageError(
                f"--what-if {part} changes SGLang's own code, and this server runs as it is",
                "add --core: the runtime core has this behaviour",
            )
        if not (_VARIABLE.fullmatch(name) and equals) and not _FLAG.fullmatch(name):
            raise UsageError(f"--what-if {text!r}: {part!r} is no flag and no variable", _WRITE)
        parts.append((name, value if equals else None))
    return Change(text, tuple(parts))


def parse_steps(text: str) -> tuple[Change, ...]:
    """`mem-fraction-static=0.80:0.94:0.01`: first, last, step."""
    name, values = sweep_values(text)
    return tuple(Change(f"{name}={value}", ((name, value),)) for value in values)


def _changed(question: Question, name: str, value: str | None) -> Question:
    if name == NO_GRAPHS:
        return question.with_flags(["--disable-cuda-graph"])
    if name == "gpu":
        return replace(question, gpu=gpu_of(value), total_bytes=None)
    if name == "sglang":
        found = find_server(None, value)
        if isinstance(found, NoServer):
            raise UsageError(f"--what-if sglang={value}: {found.why}", found.remedy)
        return replace(question, server=found)
    if _VARIABLE.fullmatch(name):
        return replace(question, environment={**question.environment, name: value or ""})
    return with_flag(question, name, value)

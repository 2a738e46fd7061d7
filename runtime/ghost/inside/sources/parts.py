"""The definitions of a C++ file by name: the names each uses, whether it is host code, what it returns.

Names are not resolved: a name stands for every definition of that name, so never too few are reached.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runtime.ghost.inside.sources.text import Token


@dataclass
class Part:
    """A definition. `owner` is its class, and `before` are the tokens before its name."""

    name: str
    kind: str  # function, declared, value, alias, class or macro
    file: Path
    tokens: Sequence[Token]
    before: Sequence[Token] = ()
    after: Sequence[Token] = ()  # from the parameters' end to the body
    owner: str = ""
    parameters: Sequence[str] = ()  # of a macro
    template: Sequence[Token] = ()
    signature: Sequence[Token] = ()  # a function's parameters, in their parentheses

    @property
    def body(self) -> Sequence[Token]:
        """The tokens of a function's body, or of a macro's replacement."""
        head = len(self.template) + len(self.before) + 1 + len(self.signature) + len(self.after)
        return self.tokens if self.kind == "macro" else self.tokens[head:]

    @property
    def is_member(self) -> bool:
        """Whether `x.name` may mean it: it is a member of a class, or defined for one outside of it."""
        return (
            bool(self.owner) or self.kind == "macro" or (bool(self.before) and self.before[-1].text == "::")
        )

    @property
    def returns_nothing(self) -> bool:
        """Whether a function's own text says that it returns nothing."""
        words = [one.text for one in self.before]
        while len(words) > 2 and words[-1] == "::":
            words = _without_qualifier(words)
        if words and words[-1] == "void":
            return True
        tail = [one.text for one in self.after]
        return bool(words) and words[-1] == "auto" and tail[-2:] == ["->", "void"]


def _without_qualifier(words: list[str]) -> list[str]:
    """Return `void Class<T>::` without its last class."""
    words = words[:-1]
    if words and words[-1] in (">", ">>>"):
        depth = 0
        while words:
            depth += words[-1].count(">") - words[-1].count("<")
            words = words[:-1]
            if depth <= 0:
                break
    return words[:-1]


@dataclass
class Parts:
    """All definitions of a file, and those that run when a module is loaded."""

    parts: list[Part] = field(default_factory=list)
    at_load: list[Part] = field(default_factory=list)
    exports: dict[str, Part] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)
    renamed: dict[str, list[str]] = field(default_factory=dict)  # `namespace a = b::c;`

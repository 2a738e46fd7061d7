"""Which tensors an exported function only reads: their values stay real when its kernels do not run."""

import re
from collections.abc import Sequence

from runtime.ghost.inside.sources.known import KEYWORDS, PLAIN
from runtime.ghost.inside.sources.names import CLOSES, opening
from runtime.ghost.inside.sources.parts import Part
from runtime.ghost.inside.sources.text import Token

LOOKS = {"size", "sizes", "stride", "strides", "shape", "dim", "ndim", "numel", "dtype", "device"}
LOOKS |= {"is_contiguous", "IsContiguous", "byte_offset"}
CASTS = {"static_cast", "reinterpret_cast"}
SCALARS = {"const", "int", "int64_t", "int32_t", "uint32_t", "size_t", "bool", "float", "double", "char"}
SCALARS |= {"&", "*", "DLDevice", "DLDataType", "std", "::", "string", "string_view"}
FOLLOWED = {"function", "macro", "declared"}
# `(float*)name`, and what stands behind the name; and names of pointers' types.
CAST = re.compile(r"(?<!sizeof )\( ([\w:<>, ]+?) ((?:(?:\*|__restrict__) )+)\) (?=([\w(&*]\w*) (\S*))")
POINTER = re.compile(r"using (\w+) = [^;]*\* (?:;|$)|typedef [^;]*\* (\w+) (?:;|$)")
WRITABLE = (PLAIN | KEYWORDS | {"*"}) - {"const", "auto"}
AFTER_PARAMETERS = {"const", "noexcept", "override", "nullptr", "volatile", "mutable", "requires"}
Values = dict[str, str]


class Reads:
    """Follows one tensor by its name through the functions that get it. Each object is used once."""

    def __init__(self, named: dict[str, list[Part]]) -> None:
        self.named = named
        self._asked: set[tuple[int, int, tuple[tuple[str, str], ...]]] = set()

    def only_reads(self, part: Part, number: int, arguments: Sequence[str]) -> bool:
        """Whether a function only looks at and reads its parameter `number`, counted from 0."""
        parameters = _parameters(part)
        if number >= len(parameters):
            return False
        values = _values(part, arguments)
        key = id(part), number, tuple(sorted(values.items()))
        if key in self._asked:
            return True  # it is being looked at; had it been found to be written, nobody would ask on
        self._asked.add(key)
        name = _name(parameters[number])
        body = _living(part.body, values)
        places = [at for at, one in enumerate(body) if one.text == name and one.kind == "name"]
        return bool(name) and all(self._reads_at(body, at, values) for at in places)

    def _reads_at(self, body: Sequence[Token], at: int, values: Values) -> bool:
        before, after = _text(body, at - 1), _text(body, at + 1)
        if before in (".", "->", "::", "#"):
            return True  # another name, or a word in a message
        if after == "." and _text(body, at + 2) in LOOKS:
            return True
        if after == "." and _text(body, at + 2) == "data_ptr":
            return _is_read(body, at)
        return before in ("(", ",") and after in (")", ",") and self._is_read_by_another(body, at, values)

    def _is_read_by_another(self, body: Sequence[Token], at: int, values: Values) -> bool:
        number, opened = _place(body, at)
        callee = opened - 1
        arguments: list[str] = []
        if _text(body, callee) == ">":
            start = opening(body, callee)
            arguments = [
                values.get(one[0].text, one[0].text) for one in _split(body[start + 1 : callee]) if one
            ]
            callee = start - 1
        functions = self.named.get(_text(body, callee), [])
        accepting = [part for part in functions if part.kind != "declared" and _accepts(part, number)]
        if not accepting or any(part.kind not in FOLLOWED for part in functions):
            return False
        return all(self.only_reads(part, number, arguments) for part in accepting)


def _text(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].text if 0 <= at < len(tokens) else ""


def _parameters(part: Part) -> list[list[Token]]:
    if part.kind == "macro":
        return [[Token("name", name, 0)] for name in part.parameters]
    start = next((at for at, one in enumerate(part.signature) if one.text == "("), 0)
    return [one for one in _split(part.signature[start + 1 : -1]) if one]


def _name(parameter: Sequence[Token]) -> str:
    words = [one.text for one in parameter]
    words = words[: words.index("=")] if "=" in words else words
    return words[-1] if words and words[-1].isidentifier() else ""


def _accepts(part: Part, number: int) -> bool:
    """Whether a parameter may be a tensor."""
    parameters = _parameters(part)
    if number >= len(parameters):
        return part.kind == "macro"
    words = [one.text for one in parameters[number]]
    return part.kind == "macro" or not set(words[:-1]) <= SCALARS


def _values(part: Part, arguments: Sequence[str]) -> Values:
    """Return the values of template parameters that are true or false."""
    names = [_name(one) for one in _split(part.template[2:-1])]
    pairs = zip(names, arguments, strict=False)
    return {name: value for name, value in pairs if value in ("true", "false")}


def _living(body: Sequence[Token], values: Values) -> list[Token]:
    """Return a body without the branches of `if constexpr` that are not compiled."""
    found: list[Token] = []
    at = 0
    while at < len(body):
        if body[at].text != "if" or _text(body, at + 1) != "constexpr":
            found.append(body[at])
            at += 1
            continue
        close = _closing(body, at + 2)
        is_true = _truth([one.text for one in body[at + 3 : close]], values)
        if is_true is None or _text(body, close + 1) != "{":
            found += body[at : close + 1]
            at = close + 1
            continue
        end = _closing(body, close + 1)
        if is_true:
            found += _living(body[close + 1 : end + 1], values)
        at = end + 1
        if is_true and _text(body, at) == "else" and _text(body, at + 1) == "{":
            at = _closing(body, at + 1) + 1
    return found


def _truth(condition: list[str], values: Values) -> bool | None:
    negated = condition[:1] == ["!"]
    rest = condition[1:] if negated else condition
    value = values.get(rest[0], rest[0]) if len(rest) == 1 else ""
    return (value == "true") != negated if value in ("true", "false") else None


def _is_read(body: Sequence[Token], at: int) -> bool:
    """Whether the name is in `static_cast<const T*>(name.data_ptr())`."""
    if _text(body, at - 1) != "(" or _text(body, at - 2) != ">" or _text(body, at - 3) != "*":
        return False
    start = opening(body, at - 2)
    return _text(body, start - 1) in CASTS and _text(body, start + 1) == "const"


def _place(body: Sequence[Token], at: int) -> tuple[int, int]:
    """Return which argument a word is, and where the parenthesis of the call opens."""
    depth, commas = 0, 0
    here = at - 1
    while here >= 0:
        word = body[here].text
        if word in (")", "]", "}"):
            depth += 1
        elif word in ("(", "[", "{"):
            if not depth:
                return commas, here
            depth -= 1
        elif word == "," and not depth:
            commas += 1
        here -= 1
    return commas, here


def _closing(tokens: Sequence[Token], at: int) -> int:
    opened, depth = tokens[at].text, 0
    for here in range(at, len(tokens)):
        word = tokens[here].text
        depth += (word == opened) - (CLOSES.get(word) == opened)
        if not depth:
            return here
    return len(tokens) - 1


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split at commas that are outside brackets and template lists."""
    depth = 0
    found: list[list[Token]] = [[]]
    for at, one in enumerate(tokens):
        opens = one.text in ("(", "[", "{") or (one.text == "<" and at and tokens[at - 1].kind == "name")
        depth += opens - (one.text in (")", "]", "}") or (one.text == ">" and depth > 0))
        if one.text == "," and not depth:
            found.append([])
        else:
            found[-1].append(one)
    return found


def pointers(part: Part) -> set[str]:
    """Return the names that a definition gives to pointer types."""
    head = "typedef " if part.kind == "alias" else ""
    return {one or other for one, other in POINTER.findall(head + _line(part))}


def may_write_what_is_constant(part: Part, pointers: set[str]) -> bool:
    """Whether a definition makes something constant writable again, by const_cast or by a cast of C."""
    text = _line(part)
    parameters = _parameters(part) if part.kind == "function" else []
    writable = {_name(one) for one in parameters if {word.text for word in one[:-1]} <= WRITABLE}
    for words, stars, operand, after in CAST.findall(text):
        is_constant = stars.count("*") == 1 and "const" in words.split()
        is_writable = operand in writable and after not in (".", "->", "[", "(")
        if not (is_constant or is_writable or operand in AFTER_PARAMETERS):
            return True
    return any(re.search(rf"\b{name} (?:\(|\) [\w(])", text) for name in pointers) or "const_cast" in text


def _line(part: Part) -> str:
    """Return a definition's words in one line."""
    return "".join("s " if one.kind in ("string", "char") else f"{one.text} " for one in part.tokens)

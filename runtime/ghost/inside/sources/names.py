"""Names within a definition: those that it declares itself, and the namespaces before a name."""

from collections.abc import Sequence

from runtime.ghost.inside.sources.known import KEYWORDS
from runtime.ghost.inside.sources.text import Token

# Keywords that a declared name may follow.
TYPES = {"auto", "bool", "char", "double", "float", "int", "long", "short", "signed", "unsigned", "void"}
TYPES |= {"class", "typename", "struct", "const", "enum", "union", "using", "constexpr", "static", "volatile"}
TYPES |= {"__restrict__", "__restrict", "namespace", "wchar_t"}
CLOSES = {")": "(", "]": "[", "}": "{", ">": "<"}
ENDS = {"=", ";", ",", ")", "(", "{", "[", ":", ">", "]", "..."}


def declared(tokens: Sequence[Token]) -> set[str]:
    """Return the variables, parameters and types that follow a type, and names of lambdas and bindings."""
    closing = set(_angles(tokens))
    found: set[str] = set()
    for at, one in enumerate(tokens):
        if one.kind != "name" or one.text in KEYWORDS or not at:
            continue
        before = tokens[at - 1]
        after = tokens[at + 1].text if at + 1 < len(tokens) else ";"
        if after not in ENDS and not (
            after.isidentifier() and after.isupper()
        ):  # a macro adds more parameters
            continue
        if before.kind == "name":
            is_one = before.text not in KEYWORDS or before.text in TYPES
        elif before.text in (">", ">>>"):
            is_one = at - 1 in closing
        elif before.text in ("*", "&", "&&", "..."):
            is_one = after != "(" and (_is_behind_a_type(tokens, at - 1, closing) or _is_pointer(tokens, at))
        else:
            is_one = before.text in ("[", ",") and _is_bound(tokens, at)
        if is_one:
            found.add(one.text)
    return found | _listed(tokens)


def _is_behind_a_type(tokens: Sequence[Token], at: int, closing: set[int]) -> bool:
    """Whether the tokens before a name are a type. `a && b` looks like one, which does no harm."""
    while at > 0 and tokens[at].text in ("*", "&", "&&", "..."):
        at -= 1
    one = tokens[at]
    return (one.kind == "name" and (one.text not in KEYWORDS or one.text in TYPES)) or at in closing


def _is_pointer(tokens: Sequence[Token], at: int) -> bool:
    """Whether the name is that of a function pointer: `int (*name)(int)`."""
    around = [one.text for one in tokens[at - 2 : at + 3]]
    return len(around) == 5 and around[:2] == ["(", "*"] and around[3:] == [")", "("]


def bases(tokens: Sequence[Token]) -> set[str]:
    """Return the names that a class takes from std: inside the class, its bases have short names."""
    return {one.text for at, one in enumerate(tokens) if qualified(tokens, at)[:1] == ["std"]}


def _is_bound(tokens: Sequence[Token], at: int) -> bool:
    """Whether the name is bound by `auto [a, b] = ...`, or by a lambda's `[x = ...]`."""
    here = at
    while here > 0 and tokens[here].text not in ("[", ";", "{", "}", "("):
        here -= 1
    if tokens[here].text != "[" or not here:
        return False
    if tokens[here - 1].text in ("auto", "&", "&&"):
        return True
    return at + 1 < len(tokens) and tokens[at + 1].text == "="


def _listed(tokens: Sequence[Token]) -> set[str]:
    """Return the names after the commas of a declaration, `int a = 1, b;`, and the names of an enum."""
    found: set[str] = set()
    is_declaration, depth, start = False, 0, True
    for at, one in enumerate(tokens):
        after = tokens[at + 1].text if at + 1 < len(tokens) else "}"
        if one.text in (";", "{", "}"):
            is_declaration, depth, start = False, 0, True
            if one.text == "{" and tokens[0].text == "{" and not at:  # the names of an enum
                is_declaration = True
            continue
        depth += (one.text in ("(", "[")) - (one.text in (")", "]"))
        if start:
            is_declaration = is_declaration or _begins_declaration(tokens, at)
            start = one.text in ("const", "constexpr", "static", "unsigned", "(") or one.text == "for"
        is_name = (
            one.kind == "name" and one.text not in KEYWORDS and after in (",", "=", ";", "[", "}", "{", "(")
        )
        first = at - 1
        while first > 0 and tokens[first].text in ("*", "&"):
            first -= 1
        if is_declaration and is_name and at and tokens[first].text in (",", "{"):
            found.add(one.text)
    return found


def _begins_declaration(tokens: Sequence[Token], at: int) -> bool:
    if at + 2 >= len(tokens) or tokens[at].kind != "name":
        return False
    if tokens[at].text in KEYWORDS and tokens[at].text not in TYPES:
        return False
    return tokens[at + 1].kind == "name" or tokens[at + 1].text in ("*", "&", "<", "::")


def _angles(tokens: Sequence[Token]) -> list[int]:
    """Return the positions of each `>` that closes a template's list of arguments."""
    opened: list[tuple[int, int]] = []  # where, and in how many parentheses
    found, depth = [], 0
    for at, one in enumerate(tokens):
        depth += (one.text in ("(", "[")) - (one.text in (")", "]"))
        if one.text == "<" and at and tokens[at - 1].kind == "name":
            opened.append((at, depth))
        elif one.text in (">", ">>>") and opened and opened[-1][1] == depth:
            found.append(at)
            del opened[-len(one.text) :]
        elif one.text in ("&&", "||"):  # a comparison, but for std::conditional_t<a || b, ...> and its like
            opened = [here for here in opened if tokens[here[0] - 1].text.endswith("_t")]
        elif one.text in (";", "{", "}"):
            opened.clear()
    return found


def qualified(tokens: Sequence[Token], at: int) -> list[str]:
    """Return the names joined to one by `::`, outermost first, without template arguments."""
    found: list[str] = []
    here = at
    while here >= 2 and tokens[here - 1].text == "::":
        here -= 2
        if tokens[here].text == ">":
            here = max(opening(tokens, here) - 1, 0)
        here -= tokens[here].text == "template"
        if tokens[here].text == ")":  # decltype(x)::name
            found.insert(0, "decltype")
            break
        if tokens[here].kind != "name":
            break
        found.insert(0, tokens[here].text)
    return found


def opening(tokens: Sequence[Token], at: int) -> int:
    """Return the position of the bracket that this one closes."""
    close, opened, depth = tokens[at].text, CLOSES[tokens[at].text], 0
    for here in range(at, -1, -1):
        depth += (tokens[here].text == close) - (tokens[here].text == opened)
        if not depth:
            return here
    return 0

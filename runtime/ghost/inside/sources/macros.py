"""Names that a macro declares for its caller: `DISPATCH(dtype, c_type, ...)` makes c_type a type."""

from collections.abc import Callable, Iterator, Sequence

from runtime.ghost.inside.sources.names import declared
from runtime.ghost.inside.sources.parts import Part
from runtime.ghost.inside.sources.text import Token

LONG = 3  # a piece with so many letters identifies the pasted names
Find = Callable[[str], Sequence[Part]]


def bound(tokens: Sequence[Token], find: Find) -> set[str]:
    """Return the arguments of macros in a text that those macros declare."""
    found = set()
    for name, at in _calls(tokens):
        macros = [part for part in find(name) if part.kind == "macro" and part.parameters]
        if macros:
            for number, argument in enumerate(_arguments(tokens, at)):
                if (
                    len(argument) == 1
                    and argument[0].kind == "name"
                    and _binds(macros, number, find, (name,))
                ):
                    found.add(argument[0].text)
    return found


def _binds(macros: Sequence[Part], number: int, find: Find, inside: tuple[str, ...]) -> bool:
    """Whether each macro of a name declares this argument."""
    return all(
        number < len(one.parameters) and _declares(one, one.parameters[number], find, inside)
        for one in macros
    )


def _declares(macro: Part, parameter: str, find: Find, inside: tuple[str, ...]) -> bool:
    if parameter in declared(macro.tokens) or _is_no_name(macro.tokens, parameter):
        return True
    for name, at in _calls(macro.tokens):
        nested = [part for part in find(name) if part.kind == "macro" and part.parameters]
        if not nested or name in inside:
            continue
        for number, argument in enumerate(_arguments(macro.tokens, at)):
            if [one.text for one in argument] == [parameter]:
                full = [one for one in nested if one.tokens]  # a case that is compiled out is empty
                if full and _binds(full, number, find, (*inside, name)):
                    return True
    return False


def _is_no_name(tokens: Sequence[Token], parameter: str) -> bool:
    """Whether a macro uses a parameter only to paste names or texts, or as the member of a class."""
    for at, one in enumerate(tokens):
        near = [other.text for other in tokens[max(0, at - 1) : at + 2]]
        if one.text == parameter and "##" not in near and near[0] not in ("#", ".", "->", "::"):
            return False
    return True


def _calls(tokens: Sequence[Token]) -> Iterator[tuple[str, int]]:
    for at in range(len(tokens) - 1):
        if tokens[at].kind == "name" and tokens[at + 1].text == "(":
            yield tokens[at].text, at + 1


def _arguments(tokens: Sequence[Token], at: int) -> list[list[Token]]:
    """Return the arguments after the opening parenthesis at `at`, split as a preprocessor splits them."""
    depth, found = 0, [[]]  # type: int, list[list[Token]]
    for one in tokens[at:]:
        if one.text == "(":
            depth += 1
            if depth == 1:
                continue
        elif one.text == ")":
            depth -= 1
            if not depth:
                break
        if one.text == "," and depth == 1:
            found.append([])
        else:
            found[-1].append(one)
    return found


def pasted(tokens: Sequence[Token]) -> list[int]:
    """Return the positions at which a macro begins to paste a name: the first `##` of each."""
    return [
        at
        for at in range(1, len(tokens) - 1)
        if tokens[at].text == "##" and (at < 2 or tokens[at - 2].text != "##")
    ]


def pieces(macro: Part, at: int) -> list[str]:
    """Return the pieces of a pasted name, from its first `##`; a piece that is a parameter is ""."""
    tokens = macro.tokens
    found = [tokens[at - 1].text]
    while at < len(tokens) - 1 and tokens[at].text == "##":
        found.append(tokens[at + 1].text)
        at += 2
    return ["" if word in macro.parameters else word for word in found]


def fits(name: str, words: Sequence[str]) -> bool:
    """Whether a name may be made of these pieces."""
    return name.startswith(words[0]) and name.endswith(words[-1]) and max(words, key=len) in name

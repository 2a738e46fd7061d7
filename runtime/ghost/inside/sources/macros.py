"""Names that a macro declares for its caller: `DISPATCH(dtype, c_type, ...)` makes c_type a type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from runtime.ghost.inside.sources.names import declared
from runtime.ghost.inside.sources.parts import Part
from runtime.ghost.inside.sources.text import Token

Find = Callable[[str], Sequence[Part]]


def bound(tokens: Sequence[Token], find: Find) -> set[str]:
    """The arguments of macros in a text that those macros declare."""
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
    """Whether each macro of a name declares what it is given as this argument."""
    return all(
        number < len(one.parameters) and _declares(one, one.parameters[number], find, inside)
        for one in macros
    )


def _declares(macro: Part, parameter: str, find: Find, inside: tuple[str, ...]) -> bool:
    if parameter in declared(macro.tokens):
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


def _calls(tokens: Sequence[Token]) -> Iterator[tuple[str, int]]:
    for at in range(len(tokens) - 1):
        if tokens[at].kind == "name" and tokens[at + 1].text == "(":
            yield tokens[at].text, at + 1


def _arguments(tokens: Sequence[Token], at: int) -> list[list[Token]]:
    """From the opening parenthesis at `at`: what stands between commas, as a preprocessor splits it."""
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

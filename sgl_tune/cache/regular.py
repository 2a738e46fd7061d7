"""Files as FlashInfer writes them, member by member: a fleet's hold the same few, so each is parsed once.

A JSON object is its members with commas between them, wherever one took the commas to be: where each piece is
one member by itself, the whole is those members. Any other file is parsed as a whole.
"""

from __future__ import annotations

import json
from typing import Any

from runtime.server.flashinfer import GENERATION

_BEGINS, _BETWEEN, _ENDS = '{\n  "', ',\n  "', "\n}"
_LONGEST = 4096
_DEEPEST = 20
_MOST = 32_768  # of some hundred bytes each
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_OWN = f'{GENERATION}": '  # another one in each file

_known: dict[str, Member] = {}


class Member:
    """`canonical` is its text in FlashInfer's checksum; `found` keeps what was found out about it, by whoever
    asked. None may change the value: other files have it, too."""

    __slots__ = ("canonical", "found", "key", "value")

    def __init__(self, key: str, value: Any) -> None:
        self.key, self.value = key, value
        self.canonical = _CANONICAL.encode({key: value})[1:-1]
        self.found: dict[Any, Any] = {}


def members_of(text: str) -> list[Member] | None:
    """None for what is not laid out so, or says a key twice."""
    if not (text.startswith(_BEGINS) and text.endswith(_ENDS)):
        return None
    found = []
    for piece in text[len(_BEGINS) : -len(_ENDS)].split(_BETWEEN):
        member = _known.get(piece) or _parsed(piece)
        if member is None:
            return None
        found.append(member)
    return found if len({member.key for member in found}) == len(found) else None


def canonical(members: list[Member]) -> str:
    ordered = sorted(members, key=lambda member: member.key)
    return f"{{{','.join([member.canonical for member in ordered])}}}"


def _parsed(piece: str) -> Member | None:
    if len(piece) > _LONGEST or piece.count("[") + piece.count("{") > _DEEPEST:
        return None
    try:
        document = json.loads(f'{{"{piece}}}')
    except ValueError:
        return None
    if len(document) != 1:
        return None
    member = Member(*document.popitem())
    if not piece.startswith(_OWN):
        if len(_known) >= _MOST:
            _known.clear()
        _known[piece] = member
    return member

"""Damage at random: of bytes, and of a JSON document's members."""

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**63, 10**30, int("9" * 4000), 1.5, float("nan"), float("inf"), "", "\0", "\ud800"),
    *("x" * 100_000, "../../x", "/dev/null", "²", "\x1b[31m", [], {}, [[]], [None], {"": 1}, [0] * 1000),
)
LONG, DEEP = b"9" * 4301, b"[" * 50_000
BYTES = (b"\0", b"\xff", b"\xef\xbb\xbf", b"{", b"}", b"[", b'"', b",", b"\\", b"=", LONG, DEEP)


def damaged(raw: bytes, chance: Random) -> bytes:
    """One to four changes."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        change: Callable[[bytes, Random], bytes] = chance.choice((in_json, in_json, in_bytes))
        raw = change(raw, chance)
    return raw


def in_bytes(raw: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(raw) + 1)
    to = min(len(raw), at + chance.choice((0, 1, 8, 4096)))
    fill = chance.choice((b"", chance.choice(BYTES), raw[at:to] * 3))
    return chance.choice((raw[:at] + fill + raw[to:], raw[:at]))


def in_json(raw: bytes, chance: Random) -> bytes:
    """A member becomes another, goes, or moves."""
    try:
        box = {"": json.loads(raw)}
    except (ValueError, RecursionError):
        return in_bytes(raw, chance)
    spots: list[tuple[Any, Any]] = []
    below: list[Any] = [box]
    while below:
        one = below.pop()
        names = list(one) if isinstance(one, dict) else range(len(one))
        spots += [(one, name) for name in names]
        below += [one[name] for name in names if isinstance(one[name], (dict, list))]
    where, name = chance.choice(spots)
    kind = chance.randrange(4)
    if kind == 0 and where is not box:
        del where[name]
    elif kind == 1:
        other, its = chance.choice(spots)
        where[name] = copy.deepcopy(other[its])
    else:
        where[name] = copy.deepcopy(chance.choice(VALUES))
    try:
        return json.dumps(box[""]).encode("utf-8", "surrogatepass")
    except RecursionError:
        return in_bytes(raw, chance)

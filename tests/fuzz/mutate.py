"""Damage that knows what it damages: members of JSON, lines of TOML and logs, words of commands."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.fuzz import nasty

Bytes = Callable[[bytes, Random], bytes]
Words = tuple[str, ...]
_MARK = "@@raw@@"
_LONG, _MANY = 200_000, 300


def mutated(seeds: Sequence[bytes], random: Random, *ways: Bytes) -> bytes:
    """One to four changes of a seed; now and then a seed as it is, or noise."""
    raw = random.choice(seeds)
    if random.random() < 0.01:
        return random.choice((b"", raw, random.randbytes(random.choice((1, 16, 400)))))
    for _ in range(random.choice((1, 1, 1, 2, 2, 4))):
        if len(raw) > _LONG:
            return raw
        try:
            raw = random.choice(ways)(raw, random)
        except RecursionError:
            raw = of_bytes(raw, random)  # nested too deep by the change before
    return raw


def of_bytes(raw: bytes, random: Random) -> bytes:
    at = random.randrange(len(raw) + 1)
    to = min(len(raw), at + random.choice((0, 0, 1, 1, 2, 8, 64, 4096)))
    fill = random.choice((b"", bytes([random.randrange(256)]), random.choice(nasty.BYTES), raw[at:to] * 3))
    return random.choice((raw[:at] + fill + raw[to:], raw[:at] + fill + raw[to:], raw[:at], raw[at:]))


def of_json(raw: bytes, random: Random) -> bytes:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return of_bytes(raw, random)
    box = {"": document}
    spots = _spots(box)
    where, name = random.choice(spots)
    random.choice(_JSON)(where, name, spots, random)
    indent, ascii = random.choice((None, None, 2)), random.random() < 0.9
    text = json.dumps(next(iter(box.values()), None), indent=indent, ensure_ascii=ascii)
    changed = text.encode("utf-8", "surrogatepass")
    return changed.replace(json.dumps(_MARK).encode(), random.choice(nasty.RAW))


def _spots(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, name) of a value: breadth first, so that the depth does not matter."""
    found, level = [], [value]
    while level:
        below = []
        for container in level:
            names = container if isinstance(container, dict) else range(len(container))
            found += [(container, name) for name in names]
            below += [container[n] for n in names if isinstance(container[n], (dict, list))]
        level = below
    return found


Change = Callable[[Any, Any, Sequence[tuple[Any, Any]], Random], None]


def _to_scalar(where: Any, name: Any, spots: Sequence[tuple[Any, Any]], random: Random) -> None:
    where[name] = random.choice(nasty.SCALARS)


def _to_container(where: Any, name: Any, spots: Sequence[tuple[Any, Any]], random: Random) -> None:
    where[name] = copy.deepcopy(random.choice(nasty.CONTAINERS))


def _to_raw(where: Any, name: Any, spots: Sequence[tuple[Any, Any]], random: Random) -> None:
    where[name] = _MARK


def _scaled(where: Any, name: Any, spots: Sequence[tuple[Any, Any]], random: Random) -> None:
    value = where[name]
    if isinstance(value, (int, float)):
        factor = random.choice((0, -1, 2, 3, 1000, 10**9, 0.5, 10**30, 1 / 3))
        where[name] = value * factor if abs(value) < 1e30 else 0
    elif isinstance(value, (str, list)):
        small = len(value) < 300 and len(spots) < _MANY
        where[name] = value * random.choice((0, 2, 1000)) if small else value[:1]


def _as_other_type(where: Any, name: Any, spots: Sequence[tuple[Any, Any]], random: Random) -> None:
    value = where[name]
    where[name] = random.choice((str(value)[:200], [value], {"value": value}, bool(value), None))


def _dropped(where: Any, name: Any, spots: Sequence[tuple[Any, Any]], random: Random) -> None:
    del where[name]


def _renamed(where: Any, name: Any, spots: Sequence[tuple[Any, Any]], random: Random) -> None:
    if isinstance(where, dict):
        where[random.choice((name + "x", name.upper(), "", "\0", "\ud800", "k" * 20_000))] = where.pop(name)


def _exchanged(where: Any, name: Any, spots: Sequence[tuple[Any, Any]], random: Random) -> None:
    other, its = random.choice(spots)
    if len(spots) < _MANY:
        where[name] = copy.deepcopy(other[its])


def _added(where: Any, name: Any, spots: Sequence[tuple[Any, Any]], random: Random) -> None:
    value = random.choice(nasty.SCALARS)
    if isinstance(where, list):
        where.insert(0, value)
    else:
        where[random.choice(("", "a", "_metadata", "type", f"{name}2"))] = value


_JSON: tuple[Change, ...] = (
    *(_to_scalar, _to_scalar, _to_scalar, _to_container, _to_raw, _scaled, _scaled, _as_other_type),
    *(_dropped, _dropped, _renamed, _exchanged, _added),
)


def duplicated_key(raw: bytes, random: Random) -> bytes:
    """A member twice in one object, with another value the second time."""
    found = list(re.finditer(rb'"[^"\\]{1,60}": ?', raw))
    if not found:
        return of_bytes(raw, random)
    member = random.choice(found)
    value = json.dumps(random.choice(nasty.SCALARS)).encode()
    return raw[: member.start()] + member[0] + value + b", " + raw[member.start() :]


def of_lines(raw: bytes, random: Random) -> bytes:
    """A line gone, twice, moved, cut, or joined with the next."""
    lines = raw.splitlines(keepends=True) or [b""]
    at, to = random.randrange(len(lines)), random.randrange(len(lines))
    kind = random.randrange(5)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines[to:to] = [lines[at]] * random.choice((1, 1, 1000))
    elif kind == 2:
        lines[at], lines[to] = lines[to], lines[at]
    elif kind == 3:
        lines[at] = lines[at][: random.randrange(len(lines[at]) + 1)]
    else:
        lines[at] = lines[at].rstrip(b"\n")
    return b"".join(lines)


def of_json_lines(raw: bytes, random: Random) -> bytes:
    """One line of a file with a JSON object in each."""
    lines = raw.splitlines() or [b""]
    at = random.randrange(len(lines))
    lines[at] = of_json(lines[at], random).replace(b"\n", b" ")
    return b"\n".join(lines) + b"\n"


def of_numbers(raw: bytes, random: Random) -> bytes:
    """A number in a text becomes another."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", raw))
    if not found:
        return of_bytes(raw, random)
    number = random.choice(found)
    other = random.choice(nasty.WORDS[:34]).encode("utf-8", "surrogateescape")
    return raw[: number.start()] + other + raw[number.end() :]


def of_toml(raw: bytes, random: Random) -> bytes:
    """A value replaced, a member of any name, a table of any depth."""
    lines = raw.splitlines()
    spots = [at for at, line in enumerate(lines) if b"=" in line]
    kind = random.randrange(5)
    if kind < 3 and spots:
        at = random.choice(spots)
        lines[at] = lines[at].partition(b"=")[0] + b"= " + random.choice(nasty.TOML)
    elif kind == 3:
        name = random.choice((b"a", b'""', b"tp", b"command", b"model-path", b"a.b.c", b"cache_dir", b"gpu"))
        lines.insert(random.randrange(len(lines) + 1), name + b" = " + random.choice(nasty.TOML))
    else:
        deep = random.choice((b"a", b"deployments.x", b"deployments", b"defaults", b"a" + b".a" * 5000))
        lines.insert(random.randrange(len(lines) + 1), random.choice((b"[%s]", b"[[%s]]")) % deep)
    return b"\n".join(lines) + b"\n"


def mutated_words(seeds: Sequence[Words], names: Sequence[str], random: Random) -> Words:
    """One to four changes of a command line. `names` are the flags that may be added."""
    words = list(random.choice(seeds))
    for _ in range(random.choice((1, 1, 2, 2, 4))):
        _change_words(words, names, random)
    return tuple(word.replace("\0", "") for word in words)


def _change_words(words: list[str], names: Sequence[str], random: Random) -> None:
    at, nasty_word = random.randrange(len(words) + 1), random.choice(nasty.WORDS)
    kind = random.randrange(7)
    if kind <= 1:
        words[at:at] = [random.choice(names), nasty_word]
    elif kind == 2:
        words.insert(at, f"{random.choice(names)}={nasty_word}")
    elif kind == 3 or not words:
        words.insert(at, nasty_word)
    elif kind == 4:
        words[min(at, len(words) - 1)] = nasty_word
    elif kind == 5:
        del words[min(at, len(words) - 1)]
    else:
        name = random.choice(names)
        words[at:at] = [name[: random.randrange(2, len(name) + 1)], nasty_word]

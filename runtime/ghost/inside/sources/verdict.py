"""Whether a function of a missing module could do more than check its arguments and launch kernels."""

from __future__ import annotations

import contextlib
import gc
import json
import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from runtime.ghost.inside.sources.build_file import FILE, build_of
from runtime.ghost.inside.sources.names import qualified
from runtime.ghost.inside.sources.parts import Part
from runtime.ghost.inside.sources.reach import Reach, Source, Unsure, forget_files
from runtime.ghost.inside.sources.reads import Reads, may_write_what_is_constant, pointers
from runtime.ghost.inside.sources.text import Token

_MOST = 1 << 24
_by_path: dict[Path, Judged] = {}
_known: dict[str, Judged] = {}
_shared: int | None = None
_learned = 0


class Judged(NamedTuple):
    """What a module's source shows of each function that it exports."""

    doubts: dict[str, str]
    reads: dict[str, list[int]]
    otherwise: str  # why nothing is known of any other function


def doubt(module: Path, function: str) -> str:
    """Return why a function may take memory or return a value, or "" if its source shows that it cannot."""
    judged = _judged(module)
    return judged.doubts.get(function, judged.otherwise)


def only_read(module: Path, function: str) -> Sequence[int]:
    """Return the arguments of a function, counted from 0, that its host code lets kernels only read."""
    return _judged(module).reads.get(function, ())


def share() -> None:
    """Let processes forked from this one hand back their verdicts, for those forked later."""
    global _shared
    _shared = os.memfd_create("judged")


def learn() -> None:
    """Read the verdicts of ended processes."""
    global _learned
    if _shared is not None:
        lines = os.pread(_shared, _MOST, _learned)
        for line in lines.splitlines():
            name, *judged = json.loads(line)
            _known[name] = Judged(*judged)
        _learned += len(lines)


def judge(module: Path) -> None:
    """Read a module's source now, if it is in a folder that its library removes after loading it."""
    if module.parent.name.startswith("."):
        _judged(module)


def _judged(module: Path) -> Judged:
    """Read a module's source once and keep none of it, so that the server's collections stay the same."""
    found = _by_path.get(module)
    if found is not None:
        return found
    name = _name(module)
    if name not in _known:
        was_on = gc.isenabled()
        gc.disable()
        try:
            _known[name] = _judge(module)
        finally:
            forget_files()
            if was_on:
                gc.enable()
        if _shared is not None:
            os.write(_shared, json.dumps([name, *_known[name]]).encode() + b"\n")
    found = _by_path[module] = _known[name]
    return found


def _name(module: Path) -> str:
    """Return a name for a module and its sources: another start may build the same name from others."""
    digest = sha256()
    with contextlib.suppress(OSError):
        digest.update((module.parent / FILE).read_bytes())
        for file in build.sources if (build := build_of(module)) else ():
            digest.update(file.read_bytes())
    return f"{digest.hexdigest()} {module.name}"


def _judge(module: Path) -> Judged:
    build = build_of(module)
    if build is None or not build.sources:
        return Judged({}, {}, "no build file says what its source is")
    try:
        source = Source(build)
    except Unsure as unsure:
        return Judged({}, {}, str(unsure))
    doubts = {name: _doubt(source, export) for name, export in source.exports.items()}
    harmless = [name for name, why in doubts.items() if not why]
    parts = [part for named in source.named.values() for part in named]
    aliases = {name for part in parts for name in pointers(part)}
    if any(may_write_what_is_constant(part, aliases) for part in parts):
        harmless = []
    reads = {name: _reads(source, source.exports[name]) for name in harmless}
    return Judged(doubts, reads, "its source does not say which function is exported")


def _doubt(source: Source, export: Part) -> str:
    try:
        _check_answers_nothing(source, export)
        Reach(source).follow(export)
    except Unsure as unsure:
        return str(unsure)
    except RecursionError:
        return "its source is too deep to be read"
    return ""


def _reads(source: Source, export: Part) -> list[int]:
    _, functions = _functions(source, export)
    at = _called(export.tokens) or 0
    given = "".join(one.text for one in export.tokens[at + 1 :]).strip("<>()").split(",")
    most = max(len(part.signature) for part in functions)
    return [
        number
        for number in range(most)
        if all(Reads(source.named).only_reads(one, number, given) for one in functions)
    ]


def _functions(source: Source, export: Part) -> tuple[str, list[Part]]:
    """Return every definition that an exported expression may name."""
    at = _called(export.tokens)
    name = export.tokens[at].text if at is not None else ""
    parts = source.named.get(name, [])
    owner = qualified(export.tokens, at)[-1:] if at is not None else []
    parts = [part for part in parts if owner == [part.owner]] or parts
    functions = [part for part in parts if part.kind == "function"]
    if not functions or any(part.kind not in ("function", "declared") for part in parts):
        raise Unsure(f"its source does not define {name or ''.join(one.text for one in export.tokens)[:80]}")
    return name, functions


def _check_answers_nothing(source: Source, export: Part) -> None:
    name, functions = _functions(source, export)
    for part in functions:
        if not part.returns_nothing:
            raise Unsure(f"{name} may answer something", (part.file, part.tokens[0].line))


def _called(tokens: Sequence[Token]) -> int | None:
    """Return the position of an expression's last name outside template arguments."""
    depth, found = 0, None
    for at, one in enumerate(tokens):
        depth += (one.text == "<") - (len(one.text) if one.text in (">", ">>>") else 0)
        if one.text in ("{", "[") or (one.text == "(" and at):
            return None
        if one.kind == "name" and not depth:
            found = at
    return found

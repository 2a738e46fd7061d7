"""One machine, parsed from a line of `sgl-tune env --format json`, which anyone may have written."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from runtime.record.checked import WrongMember, from_plain, to_plain
from sgl_tune.cli.out import SCHEMA_VERSION
from sgl_tune.deployment.versions import Gpu
from sgl_tune.errors import UsageError
from sgl_tune.fleet.holdings import Holdings
from sgl_tune.reading import LARGEST_TEXT, NoJson, NoObject, object_of, open_regular
from sgl_tune.units import human_bytes, shown
from sgl_tune.verify.environment import Target

_LONGEST_NAME = 253  # the longest host name
_LARGEST_FILE = 16 << 30
_MOST_LINES = 100_000
WAY = "one line of `sgl-tune env --format json` each"


class UnreadLine(ValueError):
    """A line does not describe a node. The text says why."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node. `holdings`: None from an older sgl-tune. `metadata`: None if FlashInfer was not asked."""

    name: str = ""
    metadata: dict[str, str] | None = None
    arch: str | None = None
    driver: str | None = None
    sglang: str | None = None
    gpus: tuple[Gpu, ...] = ()
    tool: str | None = None
    holdings: Holdings | None = None

    @property
    def target(self) -> Target:
        return Target.of(self.metadata or {}, "its env", self.arch, sglang=self.sglang, gpus=self.gpus[:1])


def holdings_json(holdings: Holdings) -> dict[str, Any]:
    """Return a machine's holdings as JSON. Empty values are left out: a file may have 1,000 lines."""
    plain = to_plain(holdings)
    return {**plain, "caches": _lean(plain["caches"]), "stores": _lean(plain["stores"])}


def _lean(value: Any) -> Any:
    if isinstance(value, list):
        return [_lean(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {name: _lean(item) for name, item in value.items() if item not in (0, "", [])}


def parse_node(raw: bytes) -> Node:
    try:
        content = object_of(raw)
    except NoObject as why:
        if isinstance(why, NoJson) and not raw.endswith(b"\n"):
            raise UnreadLine("it is cut off") from None
        raise UnreadLine(f"it {why}; one object a line is needed") from None
    return node_of(content)


def node_of(content: Mapping[str, Any]) -> Node:
    if content.get("schema_version") != SCHEMA_VERSION:
        told = shown(content.get("schema_version"))
        raise UnreadLine(
            f"its schema_version is {told}, and {SCHEMA_VERSION} is read here (written by sgl-tune"
            f" {shown(content.get('tool'))})"
        )
    if "metadata" not in content:
        raise UnreadLine("it is not what `sgl-tune env --format json` prints: it has no `metadata`")
    plain = {name: value for name, value in content.items() if name != "holdings"}
    try:
        node = from_plain(Node, plain, "it")
        if "caches" in content and not 0 < len(node.name) <= _LONGEST_NAME:
            raise WrongMember(f"its name is {shown(node.name)}")
        is_told = "caches" in content and plain.get("cache_dir")
        return replace(node, holdings=from_plain(Holdings, plain, "it")) if is_told else node
    except WrongMember as error:
        raise UnreadLine(str(error)) from None


class Line(NamedTuple):
    """A line of the file of nodes. `size`: with its line break. `problem`: why it describes no node."""

    number: int
    size: int
    node: Node | None = None
    problem: str | None = None


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file; `-` is the standard input."""
    try:
        if str(path) == "-":
            yield from _lines(sys.stdin.buffer)
            return
        with open_regular(path, _LARGEST_FILE) as file:
            yield from _lines(file)
    except OSError as error:
        how = "one line of `sgl-tune env --format json` for each node"
        raise UsageError(f"--fleet {path} cannot be read: {error.strerror}", how) from error


def _lines(file: BinaryIO) -> Iterator[Line]:
    number = 0
    while raw := file.readline(LARGEST_TEXT):
        number += 1
        size = len(raw)
        if number > _MOST_LINES:
            yield Line(number, size, problem=f"more than {_MOST_LINES:,} lines: the rest was not read")
            return
        if size == LARGEST_TEXT and not raw.endswith(b"\n"):
            size += _skipped(file)
            yield Line(number, size, problem=f"it is longer than {human_bytes(LARGEST_TEXT)}")
        elif raw.strip():
            try:
                yield Line(number, size, parse_node(raw))
            except UnreadLine as error:
                yield Line(number, size, problem=str(error))


def _skipped(file: BinaryIO) -> int:
    size = 0
    while more := file.readline(1 << 20):
        size += len(more)
        if more.endswith(b"\n"):
            break
    return size

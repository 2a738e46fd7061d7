"""One machine, parsed from a line of `sgl-tune env --format json`, which anyone may have written."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from runtime.flashinfer.versions import HOT, FlashInfer
from runtime.record.checked import WrongMember, from_plain, to_plain
from sgl_tune.cache.asked import TunedOp
from sgl_tune.cache.loader import Loaded
from sgl_tune.cli.out import SCHEMA_VERSION
from sgl_tune.deployment.versions import Gpu
from sgl_tune.errors import UsageError
from sgl_tune.reading import LARGEST_TEXT, NoJson, NoObject, object_of, open_regular
from sgl_tune.units import human_bytes, shown
from sgl_tune.verify.environment import Target
from sgl_tune.verify.findings import Finding

_LONGEST_NAME = 253  # the longest host name
_LARGEST_FILE = 16 << 30
_MOST_LINES = 100_000
WAY = "one line of `sgl-tune env --format json` each"
Fate = Literal["hit", "partial", "ignored", "replaced", "deleted", "crash", "missing", "unknown"]
_BYTES = 6
_LONGEST = 400
LENGTH = 2 * _BYTES


@dataclass(frozen=True, slots=True)
class Told:
    """A finding in few words."""

    code: str
    severity: Literal["info", "warning", "error"]
    message: str

    @classmethod
    def of(cls, found: Finding, longest: int = 240) -> "Told":
        message = found.message if len(found.message) <= longest else f"{found.message[: longest - 3]}..."
        return cls(found.code, found.severity.value, message)


@dataclass(frozen=True, slots=True)
class Content:
    """One content and the rank files that have it. `alone`: the verdict for the environment where it was
    tuned. `signature`: equal if SGLang calls two files equal; None if it cannot parse the file. `lookups`:
    sorted digests of all entries that a lookup finds; None if there are too many, or nobody looked."""

    files: tuple[str, ...]
    alone: Fate
    signature: str | None = None
    environment: dict[str, str] | None = None
    entries: int = 0
    lookups: str | None = ""
    findings: tuple[Told, ...] = ()

    @property
    def is_unread(self) -> bool:
        """Whether this is a link out of the cache, which the server follows and sgl-tune does not."""
        return self.signature is None and self.lookups is None


@dataclass(frozen=True, slots=True)
class HeldCache:
    """A cache of tactics. `path`: below the cache directory. `findings`: those of the folder itself."""

    path: str
    contents: tuple[Content, ...] = ()
    findings: tuple[Told, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldStore:
    """A store: its items counted by what the next start does with them. `names`: digests of the items that
    it finds, of many only the smallest."""

    store: str
    path: str
    found: int = 0
    built_again: int = 0
    not_looked_at: int = 0
    ends_start: int = 0
    names: str = ""
    findings: tuple[Told, ...] = ()

    def __post_init__(self) -> None:
        if min(self.found, self.built_again, self.not_looked_at, self.ends_start) < 0:
            raise WrongMember(f"a number of its store {shown(self.store)} is less than none")


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a machine holds for a start, small enough to send: digests of what decides a verdict. Its own
    machine judges a file by itself; the machine that reads all lines judges it for a deployment and for the
    environment of its server. `unseen`: what could not be opened, or was too much to list."""

    cache_dir: str
    user: str = ""
    caches: tuple[HeldCache, ...] = ()
    stores: tuple[HeldStore, ...] = ()
    unseen: tuple[str, ...] = ()


def digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).hexdigest()


def joined(digests: Iterable[str], most: int) -> str:
    """Return the digests as one text, only the smallest if there are too many. Two lists that were cut
    like this can be compared up to the smaller end."""
    return "".join(sorted(set(digests))[:most])


def split(text: str) -> list[str]:
    return [text[start : start + LENGTH] for start in range(0, len(text), LENGTH)]


def missing(wanted: str, held: str, most: int) -> int:
    """Return how many wanted digests are not held; at least so many, if a list was cut."""
    have = split(held)
    known = set(have)
    end = have[-1] if len(have) >= most else None
    return sum(one not in known and (end is None or one < end) for one in split(wanted))


def lookups_of(loaded: Loaded, reader: FlashInfer) -> list[str]:
    """Return one digest per entry, of what a lookup compares: the key, in some versions runner and policy."""
    return [
        _lookup(key, choice[0], loaded.policies.get(key, HOT), reader)
        for key, choice in loaded.entries.items()
    ]


def asked_lookups(op: TunedOp, reader: FlashInfer, asked_by: str) -> Mapping[str, int]:
    """Return the digests by which an op's lookups find their entries, with the bucket of each."""
    return {
        _lookup(entry.key, op.runner, op.policy, reader): entry.bucket
        for entry in op.entries
        if entry.asked_by == asked_by
    }


def _lookup(key: str, runner: Any, policy: Any, reader: FlashInfer) -> str:
    parts = [key]
    if reader.matches_runners:
        parts.append(shown(runner, _LONGEST))
    if reader.keeps_policies:
        parts.append(shown(tuple(policy), _LONGEST))
    return digest("\0".join(parts))


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
            raise WrongMember("it is cut off") from None
        raise WrongMember(f"it {why}; one object a line is needed") from None
    return node_of(content)


def node_of(content: Mapping[str, Any]) -> Node:
    if content.get("schema_version") != SCHEMA_VERSION:
        told = shown(content.get("schema_version"))
        raise WrongMember(
            f"its schema_version is {told}, and {SCHEMA_VERSION} is read here (written by sgl-tune"
            f" {shown(content.get('tool'))})"
        )
    if "metadata" not in content:
        raise WrongMember("it is not what `sgl-tune env --format json` prints: it has no `metadata`")
    plain = {name: value for name, value in content.items() if name != "holdings"}
    node: Node = from_plain(Node, plain, "it")
    if "caches" in content and not 0 < len(node.name) <= _LONGEST_NAME:
        raise WrongMember(f"its name is {shown(node.name)}")
    is_told = "caches" in content and plain.get("cache_dir")
    return replace(node, holdings=from_plain(Holdings, plain, "it")) if is_told else node


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
            except WrongMember as error:
                yield Line(number, size, problem=str(error))


def _skipped(file: BinaryIO) -> int:
    size = 0
    while more := file.readline(1 << 20):
        size += len(more)
        if more.endswith(b"\n"):
            break
    return size

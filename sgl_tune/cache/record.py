"""A FlashInfer autotune cache file as data: parsed, written byte for byte as FlashInfer does, digested."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from runtime.flashinfer.versions import GENERATION, METADATA, NEWEST, RECORDS, FlashInfer
from sgl_tune.cache.disk import read_regular
from sgl_tune.errors import CheckFailed

RESERVED = NEWEST.members
# The remedy for a file that harms every server that reads it.
WAY_OUT = "warm it again, or remove the file; `sgl-tune prune --unusable` does so in a cache directory"

Profile = tuple[tuple[int, ...], ...]

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_MAX_KEY = 16_384
_TOO_MUCH = 1e9  # ms: eleven days
_INT = r"(?:0|-?[1-9][0-9]{0,17})"
_SHAPE = rf"\((?:{_INT},|{_INT}(?:, {_INT})+)?\)"
_PROFILE = rf"\((?:{_SHAPE},|{_SHAPE}(?:, {_SHAPE})+)\)"
# A pattern that is compiled at the first key, because listing caches needs none.
_HEAD = rf"\('([^'\\\n]+)', '(\w+)', ({_PROFILE})(, \(|\)\Z)"
_TOKEN = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[(,)]|[^(,)'\"]+|['\"]"


class BrokenCacheFile(CheckFailed):
    """FlashInfer's loader cannot parse a file. `exception`: the type that it would raise."""

    def __init__(self, path: Path, what: str, exception: str) -> None:
        super().__init__(f"{path}: {what}; FlashInfer raises {exception} on it", remedy=WAY_OUT)
        self.path = path
        self.what = what
        self.exception = exception


class KeyParts(NamedTuple):
    """The parts of an entry's key. `shapes`: the profile's text, parsed when used. `extras`: texts,
    because a dtype is no Python literal."""

    op: str
    runner: str
    shapes: str
    extras: tuple[str, ...]
    has_extras: bool = True

    @property
    def profile(self) -> Profile:
        return _profile(self.shapes)

    @property
    def bucket(self) -> int | None:
        """Return the number of tokens that the entry was tuned for."""
        if not self.profile or not self.profile[0]:
            return None
        first = self.profile[0]
        return first[1] if self.op == "fp8_gemm" and len(first) == 3 else first[0]


@lru_cache(maxsize=65_536)
def parse_key(text: str) -> KeyParts | None:
    """Return the parts of a key that `str((op, runner, profile, extras))` can have written, else None."""
    head = re.match(_HEAD, text) if len(text) <= _MAX_KEY else None
    if head is None:
        return None
    if head[4] == ")":
        return KeyParts(head[1], head[2], head[3], (), has_extras=False)
    if not text.endswith("))"):
        return None
    extras = _parse_extras(text[head.end() : -2])
    return None if extras is None else KeyParts(head[1], head[2], head[3], extras)


@lru_cache(maxsize=512)  # the GEMMs of a layer have equal shapes
def _profile(text: str) -> Profile:
    shapes = (shape.split(",") for shape in re.findall(r"\(([^()]*)\)", text))
    return tuple(tuple(int(number) for number in shape if number.strip()) for shape in shapes)


@lru_cache(maxsize=512)  # an op has the same extras in all buckets
def _parse_extras(text: str) -> tuple[str, ...] | None:
    tokens: list[str] = []
    current, depth = "", 0
    for match in re.finditer(_TOKEN, text):
        part = match[0]
        if part == "," and depth == 0:
            tokens.append(current.strip())
            current = ""
            continue
        depth += (part == "(") - (part == ")")
        if depth < 0 or part in ("'", '"'):
            return None
        current += part
    if current.strip():
        tokens.append(current.strip())
    canonical = ", ".join(tokens) + ("," if len(tokens) == 1 else "")
    return tuple(tokens) if depth == 0 and canonical == text else None


class Entry(NamedTuple):
    """One tuned choice. `value`: the JSON as found, of any kind."""

    key: str
    value: Any

    @property
    def parts(self) -> KeyParts | None:
        return parse_key(self.key)

    @property
    def runner(self) -> str | None:
        runner = self._element(0)
        return runner if isinstance(runner, str) else None

    @property
    def tactic(self) -> Any:
        return self._element(1)

    @property
    def policy(self) -> tuple[Any, ...] | None:
        policy = self._element(2)
        return tuple(policy) if isinstance(policy, list) else None

    @property
    def chosen(self) -> Any:
        """Return how the tactic was chosen, as FlashInfer writes it since 0.7.4."""
        return self._element(3)

    @property
    def ms(self) -> float | None:
        """Return the tactic's time when it was chosen."""
        return self._measured("time_ms")

    @property
    def margin(self) -> float | None:
        """Return by what share of its time the tactic was faster than the second."""
        return self._measured("margin")

    def _measured(self, name: str) -> float | None:
        value = self.chosen.get(name) if isinstance(self.chosen, dict) else None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return value if 0 <= value < _TOO_MUCH else None

    def _element(self, index: int) -> Any:
        return self.value[index] if isinstance(self.value, list) and index < len(self.value) else None


class CacheFile:
    """A parsed file. `raw` is kept, so that content that is not understood is never lost."""

    def __init__(self, path: Path, raw: bytes, document: dict[str, Any]) -> None:
        self.path, self.raw, self.document = path, raw, document

    @property
    def metadata(self) -> Any:
        return self.document.get(METADATA)

    @property
    def generation(self) -> Any:
        return self.document.get(GENERATION)

    @property
    def records(self) -> Any:
        return self.document.get(RECORDS)

    @cached_property
    def entries(self) -> dict[str, Any]:
        return {key: value for key, value in self.document.items() if key not in RESERVED}

    def entries_for(self, reader: FlashInfer) -> dict[str, Any]:
        """Return the members that this FlashInfer version reads as entries."""
        if reader.members == RESERVED:
            return self.entries
        return {key: value for key, value in self.document.items() if key not in reader.members}

    def __iter__(self) -> Iterator[Entry]:
        return (Entry(key, value) for key, value in self.entries.items())

    @property
    def count(self) -> int:
        """Return the number of entries."""
        return len(self.document) - sum(name in self.document for name in RESERVED)

    @cached_property
    def digest(self) -> str:
        return sha256_of(self.raw)

    @cached_property
    def computed_generation(self) -> str | None:
        """Return the checksum that FlashInfer would write; None if the content is nested too deep."""
        try:
            return _generation({key: value for key, value in self.document.items() if key != GENERATION})
        except RecursionError:
            return None


def read_cache_file(path: Path) -> CacheFile:
    return parse_cache_file(path, read_regular(path))


def parse_cache_file(path: Path, raw: bytes) -> CacheFile:
    """Parse as FlashInfer does: UTF-8 text, then JSON whose top level is an object."""
    try:
        document = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BrokenCacheFile(path, f"not UTF-8 text (byte {error.start})", "UnicodeDecodeError") from None
    except json.JSONDecodeError as error:
        raise BrokenCacheFile(path, f"not JSON ({error})", "JSONDecodeError") from None
    except RecursionError:
        raise BrokenCacheFile(path, "nested too deep", "RecursionError") from None
    except ValueError as error:
        raise BrokenCacheFile(path, f"holds a number no parser takes ({error})", "ValueError") from None
    if isinstance(document, dict):
        return CacheFile(path, raw, document)
    exception = "TypeError" if isinstance(document, list) else "AttributeError"
    kind = type(document).__name__
    raise BrokenCacheFile(path, f"its top level is a JSON {kind}, not an object", exception)


def serialise(
    metadata: Mapping[str, Any],
    entries: Mapping[str, Any],
    records: Mapping[str, Any] | None = None,
    writer: FlashInfer = NEWEST,
) -> bytes:
    """Return the file that `save_configs` writes for this content, with any further fields of `metadata`."""
    ordered: dict[str, Any] = {METADATA: dict(metadata)}
    if records:
        ordered[RECORDS] = records
    for key in sorted(entries):
        ordered[key] = entries[key]
    if GENERATION in writer.members:
        ordered[GENERATION] = _generation(ordered)
    return json.dumps(ordered, indent=2).encode()


def _generation(document: Mapping[str, Any]) -> str:
    return sha256_of(_CANONICAL.encode(document).encode())


def sha256_of(raw: bytes) -> str:
    import hashlib  # a tenth of a listing's imports, and most listings need no digest

    return hashlib.sha256(raw).hexdigest()

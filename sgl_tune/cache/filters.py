"""Filters such as `--filter 'size>1MB'`, for caches and for their entries."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from runtime.server.bounds import is_number
from sgl_tune.cache.record import Entry
from sgl_tune.cache.scan import ScannedCache
from sgl_tune.errors import UsageError
from sgl_tune.units import parse_age, parse_size

_COMPARISON = r"\s*([a-z_]+)\s*(<=|>=|!=|==?|<|>)\s*(.+?)\s*"
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_NUMBERS: dict[str, tuple[Callable[[ScannedCache], float | None], Callable[[str], float]]] = {
    "size": (lambda cache: cache.bytes, parse_size),
    "age": (lambda cache: cache.age, parse_age),
    "entries": (lambda cache: cache.entries, lambda text: _parse_count(text)),
    "ranks": (lambda cache: len(cache.files), lambda text: _parse_count(text)),
}


def _named(text: str, wanted: str) -> bool:
    """Whether a name matches by its parts: `gemm1` and `fused_moe` both match `trtllm::fused_moe::gemm1`."""
    return f"::{wanted}::" in f"::{text}::"


def _among_words(text: str, wanted: str) -> bool:
    """Whether all words occur: `h200` matches `NVIDIA H200`, but not `NVIDIA GH200`."""
    return set(_words(wanted)) <= set(_words(text))


def _of_path(text: str, wanted: str) -> bool:
    """Whether a path or one of its parts matches: `zai-org` and `GLM-5.1-FP8` match `zai-org/GLM-5.1-FP8`."""
    parts = [part.lower() for part in text.split("/")]
    return text.lower() == wanted.lower() or wanted.lower() in parts


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


_SAME: dict[str, Callable[[str, str], bool]] = {"gpu": _among_words, "model": _of_path, "op": _named}
_TEXTS: dict[str, Callable[[ScannedCache], str | None]] = {
    "flashinfer": lambda cache: cache.cache.flashinfer,
    "arch": lambda cache: cache.cache.arch,
    "key": lambda cache: cache.cache.key,
    "layout": lambda cache: cache.cache.layout,
    "gpu": lambda cache: (cache.environment or {}).get("gpu"),
    "model": lambda cache: next(iter(cache.manifest.key_parts if cache.manifest else ()), None),
    "agree": lambda cache: "yes" if cache.agree else "no",
}
_ENTRIES: dict[str, Callable[[Entry], str | None]] = {
    "op": lambda entry: entry.parts.op if entry.parts else None,
    "runner": lambda entry: entry.runner,
    "bucket": lambda entry: str(entry.parts.bucket) if entry.parts else None,
}
FIELDS = (*_NUMBERS, *_TEXTS, *_ENTRIES)


class Filter(NamedTuple):
    """One --filter. A cache passes by its property; for op, runner and bucket, by one of its entries."""

    field: str
    symbol: str
    value: Any

    def keeps(self, cache: ScannedCache) -> bool:
        if self.field in _ENTRIES:
            return any(map(self.keeps_entry, (e for one in cache.contents for e in one.read_entries())))
        if self.field in _TEXTS:
            return self._is(_TEXTS[self.field](cache))
        number = _NUMBERS[self.field][0](cache)
        if self.symbol in ("=", "==", "!="):
            return (number == self.value) != (self.symbol == "!=")
        return number is not None and _OPERATORS[self.symbol](number, self.value)

    def keeps_entry(self, entry: Entry) -> bool:
        return self.field not in _ENTRIES or self._is(_ENTRIES[self.field](entry))

    def _is(self, text: str | None) -> bool:
        same = text is not None and _SAME.get(self.field, operator.eq)(text, self.value)
        return same != (self.symbol == "!=")


def parse_filters(texts: Sequence[str]) -> list[Filter]:
    return [_parse_filter(text) for text in texts]


def _parse_filter(text: str) -> Filter:
    match = re.fullmatch(_COMPARISON, text)
    if not match:
        raise UsageError(f"--filter '{text}' is no comparison", "write it like --filter 'size>1MB'")
    name, symbol, value = match.groups()
    if name not in FIELDS:
        raise UsageError(f"--filter '{text}': there is no field '{name}'", f"fields: {', '.join(FIELDS)}")
    if name in _NUMBERS:
        return Filter(name, symbol, _NUMBERS[name][1](value))
    if symbol in _OPERATORS:
        raise UsageError(f"--filter '{text}': {name} can only be = or !=", f"for instance '{name}={value}'")
    return Filter(name, symbol, value)


def _parse_count(text: str) -> float:
    if not is_number(text):
        raise UsageError(f"'{text}' is not a number")
    return int(text)

"""Describe a scanned cache in words and as JSON, as far as filters such as `--filter 'size>1MB'` keep it."""

import json
import operator
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from runtime.server.bounds import is_number
from sgl_tune.cache.layouts.cache import is_unfinished
from sgl_tune.cache.layouts.readers import LAYOUTS
from sgl_tune.cache.record import Entry
from sgl_tune.cache.scan import Content, ScannedCache
from sgl_tune.errors import UsageError
from sgl_tune.units import count, human_bytes, parse_age, parse_size

_LONGEST = 60  # characters of a name, which may come from anyone
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

    def _is(self, text: Any) -> bool:
        same = isinstance(text, str) and _SAME.get(self.field, operator.eq)(text, self.value)
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


def cache_json(cache: ScannedCache, with_entries: bool, filters: Sequence[Filter] = ()) -> dict[str, Any]:
    place = cache.cache
    data: dict[str, Any] = {
        "store": "tactics",
        "path": str(place.path),
        "layout": place.layout,
        "flashinfer": place.flashinfer,
        "arch": place.arch,
        "key": place.key,
        "bytes": cache.bytes,
        "age_seconds": cache.age,
        "agree": cache.agree,
        "files": [
            {
                "path": str(file.path),
                "rank": file.rank._asdict() if file.rank else None,
                "entries": file.content.entries,
                "bytes": file.bytes,
                "digest": file.digest,
                "environment": file.content.environment or cache.environment,
                "problem": file.content.problem,
            }
            for file in cache.files
        ],
        "leftovers": [str(path) for path in place.leftovers],
        "runs": [str(path) for path in place.runs],
        "manifest": vars(cache.manifest) if cache.manifest else None,
    }
    if with_entries:
        data["contents"] = {
            file.digest: [entry_json(entry) for entry in wanted(file.content, filters)]
            for file in {id(file.content): file for file in cache.files}.values()
        }
    return data


def entry_json(entry: Entry) -> dict[str, Any]:
    op, bucket = (entry.parts.op, entry.parts.bucket) if entry.parts else (None, None)
    names = ("runner", "tactic", "policy", "ms", "margin", "key")
    return {"op": op, "bucket": bucket, **{name: getattr(entry, name) for name in names}}


def wanted(content: Content, filters: Sequence[Filter]) -> list[Entry]:
    """Return the entries that pass the filters, sorted by op, then by bucket."""

    def order(entry: Entry) -> tuple[str, int, str]:
        parts = entry.parts
        return (parts.op, parts.bucket or 0, entry.key) if parts else ("", 0, entry.key)

    entries = content.read_entries()
    return sorted((entry for entry in entries if all(f.keeps_entry(entry) for f in filters)), key=order)


def place_text(cache: ScannedCache) -> str:
    """Return what the caches of one place have in common: the reader, the version, the GPU."""
    place = cache.cache
    if place.layout == "files":
        return f"Files in {place.path}"
    words = [LAYOUTS[place.layout].whose]
    if place.flashinfer:
        words.append(f"FlashInfer {place.flashinfer[:_LONGEST]}")
    if place.arch:
        words.append(place.arch[:_LONGEST])
    gpu = (cache.environment or {}).get("gpu")
    if isinstance(gpu, str) and gpu != place.arch:
        words.append(gpu[:_LONGEST])
    return ", ".join(words)


def deployment_text(cache: ScannedCache) -> str:
    """Return the model and the sizes other than 1 that the manifest names."""
    if not cache.manifest:
        return ""
    parts = cache.manifest.key_parts
    sizes = zip(("tp", "pp", "dp", "ep"), parts[4:8], strict=False)
    return " ".join([*parts[:1], *(f"{name} {size}" for name, size in sizes if size != "1")])


def remarks(cache: ScannedCache) -> list[str]:
    """Return warnings to print below the table of caches, such as ranks that differ."""
    name = cache.cache.key or cache.cache.path.name
    said = []
    if not cache.agree:
        said.append(f"{name}: ranks differ; `sgl-tune diff` shows where, `sgl-tune verify` shows the effect")
    said += [f"{file.path.name}: {file.content.problem}" for file in cache.files if file.content.problem]
    if cache.manifest_problem:
        said.append(cache.manifest_problem)
    dead = [path for path in cache.cache.leftovers if not is_unfinished(path.name)]
    if len(dead) < len(cache.cache.leftovers):
        said.append(f"{name}: an interrupted write; the next `sgl-tune warm` or `prune` settles it")
    if dead:
        what = count(len(dead), "temporary file")
        said.append(f"{name}: {what} of writers; `prune --stale` knows the dead")
    if cache.cache.runs:
        size = sum(path.lstat().st_size for path in cache.cache.runs if os.path.lexists(path))
        what = f"{count(len(cache.cache.runs), 'old run')}, {human_bytes(size)}"
        said.append(f"{name}: {what}; no server reads them")
    return said


def tactic_text(tactic: Any) -> str:
    return json.dumps(tactic) if not isinstance(tactic, int) else str(tactic)

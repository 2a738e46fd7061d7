"""Describe a scanned cache in words and as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from sgl_tune.cache.filters import Filter
from sgl_tune.cache.layouts.cache import is_unfinished
from sgl_tune.cache.layouts.readers import LAYOUTS
from sgl_tune.cache.record import Entry
from sgl_tune.cache.scan import Content, ScannedCache
from sgl_tune.units import count, human_bytes

_LONGEST = 60  # characters of a name, which may come from anyone


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
    parts = entry.parts
    return {
        "op": parts.op if parts else None,
        "runner": entry.runner,
        "bucket": parts.bucket if parts else None,
        "tactic": entry.tactic,
        "policy": entry.policy,
        "ms": entry.ms,
        "margin": entry.margin,
        "key": entry.key,
    }


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

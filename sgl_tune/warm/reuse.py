"""Entries that valid files already hold: the same on every worker, whichever node they were found on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runtime.flashinfer.versions import flashinfer_of
from sgl_tune.cache.loader import Ignored, Loaded, could_be_tactic, load_document
from sgl_tune.cache.record import BrokenCacheFile, read_cache_file
from sgl_tune.errors import WorkFailed

Entries = dict[str, Any]


def usable_entries(files: Sequence[Path], environment: Mapping[str, str], replacing: bool) -> Entries:
    """Of all files together, what a server here would load and run. Broken files are the writer's to set
    aside; an entry whose tactic no kernel can take is tuned again."""
    found: Entries = {}
    here = flashinfer_of(environment["flashinfer_version"])
    for path in files:
        try:
            file = read_cache_file(path)
        except (FileNotFoundError, BrokenCacheFile):
            continue
        outcome = load_document(file.document, environment, here)
        if isinstance(outcome, Ignored) and outcome.hard and not replacing:
            raise _conflict(path, outcome)
        if isinstance(outcome, Loaded):
            runs = [key for key, (_, tactic) in outcome.entries.items() if could_be_tactic(tactic)]
            found = {**{key: file.entries[key] for key in runs if key in file.entries}, **found}
    return found


def agreed(entries: Entries, gather: Callable[[Entries], list[Entries]]) -> Entries:
    """Every node may have other files: the first worker's entry counts, on all of them."""
    union: Entries = {}
    for others in gather(entries):
        union = {**others, **union}
    return union


def write_base(path: Path, entries: Entries, environment: Mapping[str, str]) -> None:
    path.write_text(json.dumps({"_metadata": dict(environment), **entries}))


def _conflict(path: Path, outcome: Ignored) -> WorkFailed:
    name, mismatch = next(iter(outcome.hard.items()))
    return WorkFailed(
        f"{path} was tuned in another environment: {name} is {mismatch.saved!r} there, "
        f"{mismatch.current!r} here; a server here would ignore it and never save over it",
        "--replace writes it anew for this environment; or give another --cache-dir",
    )

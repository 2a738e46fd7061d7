"""The run file of `mem-report --from`, as --measure streams it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutate import duplicated_key, mutated, of_bytes, of_json_lines, of_lines, of_numbers
from tests.fuzz.parser import Parser, command

_PHASE: dict[str, Any] = {
    "name": "weights",
    "depth": 0,
    "seconds": 1.5,
    "persistent_bytes": 1 << 30,
    "peak_bytes": 2 << 30,
    "transient_bytes": 1 << 30,
    "allocated_bytes": 1 << 30,
    "reserved_bytes": 1 << 30,
    "reserved_peak_bytes": 2 << 30,
    "free_at_peak_bytes": 70 << 30,
    "non_torch_bytes": 1 << 28,
    "largest": [{"bytes": 1 << 29, "what": "w13", "where": "experts.py:40"}],
}
_OOM = {
    "tried_bytes": 1 << 30,
    "free_bytes": 1 << 20,
    "total_bytes": 80 << 30,
    "allocated_bytes": 79 << 30,
    "reserved_unallocated_bytes": 0,
    "where": "a.py:1",
}
_ABOUT: dict[str, Any] = {
    "event": "run",
    "schema_version": 1,
    "device": "meta",
    "total_bytes": 80 << 30,
    "gpu": "H100",
    "rank": 1,
    "rank_name": "DP1 TP1",
    "title": "a start",
    "subtitle": "tp 8",
}
_FACTS = {
    "event": "facts",
    "kv_tokens": 1000,
    "kv_bytes_per_token": 576,
    "mem_fraction_static": 0.9,
    "decode_graphs": [1, 2],
    "prefill_graphs": [4, 8],
    "context_length": 4096,
    "max_running_requests": 32,
    "constants": [{"name": "context", "bytes": 1 << 30, "source": "s", "times": 2}],
}
_BEGUN = {"event": "begin", "phase": "weights"}
_ENDED = {"event": "end", **_PHASE}
_INNER = [{"event": "begin", "phase": "load"}, {"event": "end", **_PHASE, "name": "load", "depth": 1}]
_FAILED = {
    "event": "failed",
    "phase": "weights",
    "error": "OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.",
    "out_of_memory": _OOM,
    "at_failure": _PHASE,
}


def _lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


_SEEDS = (
    _lines(_ABOUT, _FACTS, _BEGUN, *_INNER, _ENDED),
    _lines({**_ABOUT, "device": "cuda"}, _BEGUN, _ENDED, _FACTS),
    _lines(_ABOUT, _BEGUN, _FAILED),
    _lines(_ABOUT, _BEGUN),
)


def _make(random: Random) -> bytes:
    return mutated(
        _SEEDS,
        random,
        of_json_lines,
        of_json_lines,
        of_json_lines,
        duplicated_key,
        of_bytes,
        of_lines,
        of_numbers,
    )


def _read(raw: bytes, folder: Path) -> None:
    (folder / "run.jsonl").write_bytes(raw)
    form = ("human", "json", "quiet")[len(raw) % 3]
    page = ("--html", "page.html") if len(raw) % 5 == 0 else ()
    command("mem-report", "--from", "run.jsonl", *page, "--format", form)


PARSER = Parser(_make, _read)

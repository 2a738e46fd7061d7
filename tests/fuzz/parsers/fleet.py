"""Lines of `sgl-tune env` from many nodes, the target's, and the report of a cold start."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from tests.fuzz.mutate import duplicated_key, mutated, of_bytes, of_json_lines, of_lines, of_numbers
from tests.fuzz.parser import Parser, command
from tests.sgl_tune.running import ROOT

_KEY = "4aaede739ed1db5a"
_FILES = ("nodes.jsonl", "target.json", "cold.json")
_FORMATS = ("human", "json", "quiet", "markdown", "junit", "prometheus")
_SERVER = ("--model-path", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass")
_STORE = {"store": "triton", "path": "/c/triton", "found": 2, "built_again": 1, "names": "0123456789ab" * 2}


def _node() -> bytes:
    """One that is there already, with one of its caches and a store."""
    line = (ROOT / "cache-examples" / "nodes.jsonl").read_text().splitlines()[0]
    told = json.loads(line)
    told["caches"] = [cache for cache in told["caches"] if cache["path"].endswith(_KEY)]
    return json.dumps({**told, "gpus": told["gpus"][:1], "stores": [_STORE]}).encode() + b"\n"


_NODE = _node()
_GOOD = (_NODE * 2, _NODE, json.dumps({"phases": [{"store": "tactics", "saves_seconds": 24.5}]}).encode())


def _make(random: Random) -> tuple[int, bytes]:
    which = random.choice((0, 0, 0, 1, 2))
    ways = (of_json_lines, of_json_lines, duplicated_key, of_bytes, of_lines, of_numbers)
    return which, mutated([_GOOD[which]], random, *ways)


def _read(made: tuple[int, bytes], folder: Path) -> None:
    which, raw = made
    for name, good in zip(_FILES, _GOOD, strict=True):
        (folder / name).write_bytes(good)
    (folder / _FILES[which]).write_bytes(raw)
    beside = ("--target", "target.json", "--cold-start", "cold.json") if which else ()
    form = _FORMATS[len(raw) % len(_FORMATS)]
    command("verify", "--fleet", "nodes.jsonl", *beside, *_SERVER, "--format", form)


PARSER = Parser(_make, _read)

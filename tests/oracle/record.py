"""SGLang's answers in a small file: gzipped JSON lines, a command each."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.oracle.commands import Command

RECORDED = Path(__file__).parent / "recorded/servers.jsonl.gz"
COMBINATIONS = Path(__file__).parent / "recorded/combinations.jsonl.gz"
ARCHITECTURES = Path(__file__).parent / "recorded/architectures.jsonl.gz"
RARE = Path(__file__).parent / "recorded/rare.jsonl.gz"
EDGES = Path(__file__).parent / "recorded/edges.jsonl.gz"
DIFFUSION = Path(__file__).parent / "recorded/diffusion.jsonl.gz"
SPARSE = Path(__file__).parent / "recorded/sparse.jsonl.gz"
MINIMAX_M3 = Path(__file__).parent / "recorded/minimax_m3.jsonl.gz"
# Of the checks: their own words, and some that a wheel was not asked. tests/server/test_refusal_cases.py
REFUSALS = Path(__file__).parents[1] / "server/refusal_cases.jsonl.gz"
Pairs = list[tuple[Command, dict[str, Any]]]


def write(path: Path, pairs: Iterable[tuple[Command, dict[str, Any]]]) -> None:
    """What the oracle could not ask is no answer and is left out."""
    rows = [
        {
            "release": command.release,
            "gpu": command.gpu,
            "model": command.model,
            "argv": command.argv,
            **answer,
        }
        for command, answer in pairs
        if "failed" not in answer
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), mtime=0))


def add(pairs: Pairs, path: Path = RECORDED) -> None:
    """To the recorded answers of the other releases."""
    new = {command.release for command, _ in pairs}
    others = [pair for pair in read(path) if pair[0].release not in new] if path.is_file() else []
    write(path, sorted([*others, *pairs], key=lambda pair: pair[0].release))


def read(path: Path) -> Pairs:
    pairs: Pairs = []
    with gzip.open(path, "rt") as file:
        for number, line in enumerate(file):
            row = json.loads(line)
            where = (row.pop("release"), row.pop("gpu"), row.pop("model"), tuple(row.pop("argv")))
            pairs.append((Command(number, *where), row))
    return pairs


def refusals() -> Iterator[tuple[Command, str | None]]:
    with gzip.open(REFUSALS, "rt") as file:
        for line in file:
            case = json.loads(line)
            where = case["release"], case["gpu"], case["model"], tuple(case["argv"])
            yield Command(0, *where), case["refused"]

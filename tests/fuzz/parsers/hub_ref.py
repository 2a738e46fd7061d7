"""refs/main of a model in the Hugging Face cache: which snapshot it names."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from tests.fuzz.mutate import mutated, of_bytes, of_lines
from tests.fuzz.parser import Parser, command
from tests.fuzz.parsers.config_json import SEEDS

_SEEDS = (
    b"0123456789abcdef0123456789abcdef01234567",
    b"main\n",
    b"../../../secret",
    b"\xff\xfe\0",
    b"a" * 5000,
)


def _make(random: Random) -> bytes:
    return mutated(_SEEDS, random, of_bytes, of_lines)


def _read(raw: bytes, folder: Path) -> None:
    hub = folder / "models--org--name"
    snapshot = hub / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    snapshot.mkdir(parents=True)
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_bytes(raw)
    (snapshot / "config.json").write_bytes(SEEDS[0])
    os.environ["HF_HUB_CACHE"] = str(folder)
    command(
        "warm", "--dry-run", "--model-path", "org/name", "--arch", "sm90", "--flashinfer-version", "0.7.2"
    )


PARSER = Parser(_make, _read)

"""`sgl-tune.toml` in the working folder."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.fuzz.mutate import mutated, of_bytes, of_lines, of_numbers, of_toml
from tests.fuzz.parser import Parser, command

_SEEDS = (
    b"""[defaults]
sglang-version = "0.5.23"
arch = "sm90"

[deployments.chat]
model-path = "Qwen/Qwen3-30B-A3B"
moe-runner-backend = "flashinfer_cutlass"
tp = 4
mem-fraction-static = 0.9
enable-dp-attention = true
flashinfer-autotune-skip-ops = ["a", "b"]

[deployments.reason]
command = "sglang serve zai-org/GLM-5.1 --moe-runner-backend flashinfer_cutlass --tp 8 --ep 8"
cache-dir = "cache"
""",
    b'[deployments.one]\nmodel-path = "DeepSeek-V3"\ntp = 8\ndp = 8\nspeculative-algorithm = "EAGLE"\n',
    b'deployments = {a = {tp = 2}, b = {command = "python -m sglang.launch_server --model demo-moe"}}\n',
)


def _make(random: Random) -> bytes:
    return mutated(_SEEDS, random, of_toml, of_toml, of_toml, of_bytes, of_lines, of_numbers)


def _read(raw: bytes, folder: Path) -> None:
    (folder / "sgl-tune.toml").write_bytes(raw)
    command(*(("warm", "--dry-run") if len(raw) % 4 else ("verify",)), "--format", "json")


PARSER = Parser(_make, _read)

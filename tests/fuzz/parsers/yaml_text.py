"""A manifest or --config: anchors, aliases and merge keys at random, and text that is damaged."""

from __future__ import annotations

from pathlib import Path
from random import Random

from sgl_tune.deployment.manifest_yaml import containers_of
from sgl_tune.errors import UsageError
from tests.fuzz.mutate import mutated, of_bytes, of_lines
from tests.fuzz.parser import Parser

_POD = b"""\
x: &x {env: [{name: A, value: "1"}]}
spec: {containers: [{<<: *x, image: i, command: [python, -m, sglang.launch_server], args: [--tp, "8"]}]}
---
services: {a: &a {image: i, command: "python -m sglang.launch_server --tp 2"}, b: {<<: [*a, *a], image: j}}
"""


def _make(random: Random) -> bytes:
    if random.random() < 0.3:
        return mutated((_POD,), random, of_bytes, of_lines)
    count = random.choice((2, 5, 15, 40))
    lines = [f"a{place}: &a{place} {_value(random, place, 3)}" for place in range(count)]
    text = "\n".join(lines).encode()
    return mutated((text,), random, of_bytes, of_lines) if random.random() < 0.3 else text


def _value(random: Random, before: int, depth: int) -> str:
    kind = random.random()
    if depth == 0 or kind < 0.1:
        return random.choice(("1", "x", "~", "0x1f", "1:30", "2026-11-29", '"\\u0000"', "!!binary AA=="))
    if kind < 0.5 and before:
        return f"*a{random.randrange(before + (random.random() < 0.05))}"
    inner = [_value(random, before, depth - 1) for _ in range(random.choice((1, 2, 3, 12)))]
    if kind < 0.6:
        return f"[{', '.join(inner)}]"
    keys = [random.choice(("<<", "<<", "? <<", "k", "command", "args", "services", "=")) for _ in inner]
    if random.random() < 0.5:
        return f"{{<<: [{', '.join(inner)}]}}"
    return "{" + ", ".join(f"{key} : {value}" for key, value in zip(keys, inner, strict=True)) + "}"


def _read(made: bytes, folder: Path) -> None:
    containers_of(made.decode("utf-8", "replace"))


PARSER = Parser(_make, _read, (UsageError,))

"""What a shell offers for a flag's value: names that are known, read from nowhere slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from runtime.server.gpus import GPUS

Offer = Callable[[], list[str]]


def gpus() -> list[str]:
    return [gpu.name.lower().replace(" ", "-") for gpu in GPUS]


def models() -> list[str]:
    folder = Path(__file__).parents[1] / "presets" / "models"
    return sorted(file.stem for file in folder.glob("*.json"))


def one_of(names: Iterable[str]) -> Offer:
    """Of a text its words."""
    listed = names.split() if isinstance(names, str) else list(names)
    return lambda: listed

"""What a shell offers for a flag's value: names that are known, read from nowhere slow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from runtime.server.gpus import GPUS
from runtime.server.releases import NEWEST, RELEASES

Offer = Callable[[], list[str]]


def gpus() -> list[str]:
    return [gpu.name.lower().replace(" ", "-") for gpu in GPUS]


def architectures() -> list[str]:
    return sorted({gpu.arch for gpu in GPUS})


def releases() -> list[str]:
    return [row.version for row in RELEASES]


def models() -> list[str]:
    folder = Path(__file__).parents[1] / "presets" / "models"
    return sorted(file.stem for file in folder.glob("*.json"))


def choices(names: tuple[str, ...]) -> Offer:
    """What the newest SGLang takes for one of its flags."""

    def offer() -> list[str]:
        from runtime.server.flags.table import flags_of

        known = flags_of(NEWEST.version).by_name
        flag = next((known[name] for name in names if name in known), None)
        return [str(choice) for choice in (flag.choices if flag else None) or ()]

    return offer

"""What adapters of --lora-paths say of themselves, where all of them lie here: srt/lora/lora_config.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint

_CONFIG, _TOKENS = "adapter_config.json", "added_tokens.json"


def with_adapter_files(asked: Asked, checkpoint: Checkpoint) -> dict[str, Any]:
    """What of `asked` follows from them: nothing where one is not read."""
    try:
        found = [*map(_read, _folders(asked))]
        vocabulary = checkpoint.whole("vocab_size", 0)
        if not found or any(_adds_tokens(folder, vocabulary) for folder in _folders(asked)):
            return {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    modules = tuple(dict.fromkeys(name for one in found for name in one[1]))
    return {"adapter_rank": max(rank for rank, _ in found), "adapter_modules": modules}


def _folders(asked: Asked) -> Iterator[Path]:
    for one in asked.lora_paths or ():
        told = one["lora_path"] if isinstance(one, Mapping) else one.partition("=")[2] or one
        yield Path(told).expanduser()


def _read(folder: Path) -> tuple[int, list[str]]:
    told = json.loads((folder / _CONFIG).read_text())
    rank, modules = told["r"], told["target_modules"]
    if type(rank) is not int or rank < 1 or not isinstance(modules, list):
        raise ValueError(_CONFIG)
    return rank, [str(name) for name in modules]


def _adds_tokens(folder: Path, vocabulary: int) -> bool:
    file = folder / _TOKENS
    if not file.exists():
        return False
    return any(number >= vocabulary for number in json.loads(file.read_text()).values())

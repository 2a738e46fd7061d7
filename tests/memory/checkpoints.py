"""The config.json files of published checkpoints. No torch."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from runtime.server.params_json import config_of
from tests.oracle.published import MADE_UP, Published, published

DATA = Path(__file__).parent / "data"


def params() -> dict[str, dict[str, Any]]:
    """Mistral's own files, in whose place SGLang makes a config.json."""
    told: dict[str, dict[str, Any]] = json.loads((DATA / "published_params.json").read_text())
    return told


@cache
def checkpoints() -> tuple[Published, ...]:
    """As the oracle has them, and some whose quantization alone is another."""
    known = published()
    told = json.loads((DATA / "published_quantized.json").read_text())
    more = [Published(name, "", {**known[row.pop("like")].config, **row}) for name, row in told.items()]
    families = json.loads((DATA / "published_families.json").read_text())
    more += [Published(name, "", config) for name, config in families.items()]
    more += [Published(name, "", config_of(told, name)) for name, told in params().items()]
    return (*(one for one in known.values() if not one.name.startswith(MADE_UP)), *more)


@cache
def _by_name() -> dict[str, dict[str, Any]]:
    return {one.name: one.config for one in checkpoints()}


def published_config(name: str) -> dict[str, Any]:
    return _by_name()[name]

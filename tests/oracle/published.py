"""Published checkpoints as their config.json states them. A new one is a line in a file of models/."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "models"
MADE_UP = "made-up"  # how folders of checkpoints begin that nobody published
SHARED = ("quantizations.json", "modelopt_files.json")


@dataclass(frozen=True)
class Published:
    """`modelopt_file` is hf_quant_config.json, where the checkpoint has one."""

    name: str
    family: str
    config: dict[str, Any]
    modelopt_file: dict[str, Any] | None = None

    @property
    def path(self) -> str:
        """Relative, so that a key does not depend on where the oracle works."""
        return f"models/{self.name}"


def target_models() -> list[str]:
    """What somebody serves: no draft, and nothing made up."""
    return [name for name in published() if "EAGLE3" not in name and not name.startswith(MADE_UP)]


@cache
def published() -> dict[str, Published]:
    families = sorted(path.stem for path in FOLDER.glob("*.json") if path.name not in SHARED)
    return {one.name: one for family in families for one in _family(family)}


def write_checkpoints(folder: Path) -> None:
    """As a server finds them, below `folder`."""
    for one in published().values():
        target = folder / one.path
        target.mkdir(parents=True, exist_ok=True)
        (target / "config.json").write_text(json.dumps(one.config))
        if one.modelopt_file is not None:
            (target / "hf_quant_config.json").write_text(json.dumps(one.modelopt_file))


def _family(family: str) -> list[Published]:
    quantizations, files = (json.loads((FOLDER / name).read_text()) for name in SHARED)
    stated = json.loads((FOLDER / f"{family}.json").read_text())
    found = []
    for row in stated.get("models") or _made_up(stated["architectures"]):
        config = _config(stated) | row.get("changes", {})
        if "quantization" in row:
            config["quantization_config"] = quantizations[row["quantization"]]
        found.append(Published(row["name"], family, config, files.get(row.get("modelopt_file"))))
    return found


def _made_up(architectures: list[str]) -> Iterator[dict[str, Any]]:
    """As it is, and as ModelOpt would quantize it."""
    for one in architectures:
        yield {"name": f"{MADE_UP}/{one}", "changes": {"architectures": [one]}}
    for one in architectures:
        row = {"name": f"{MADE_UP}-nvfp4/{one}", "changes": {"architectures": [one]}}
        yield {**row, "quantization": "modelopt_nvfp4"}


def _config(stated: dict[str, Any]) -> dict[str, Any]:
    if "like" not in stated:
        return dict(stated["config"])
    return _config(json.loads((FOLDER / f"{stated['like']}.json").read_text())) | stated["config"]

"""From a model path to its shape: a folder, a preset or the local Hugging Face cache; no download."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from runtime.server.checkpoint import Checkpoint
from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError, Unsupported
from sgl_tune.errors import UsageError
from sgl_tune.records import WrongMember, from_plain, to_plain

DEMO = "demo-moe"
_PRESETS = Path(__file__).parents[1] / "presets"
_LARGEST_CONFIG = 8 << 20


@dataclass(frozen=True, slots=True)
class Preset:
    name: str
    hf_ids: tuple[str, ...]
    source: str
    config: Mapping[str, Any]

    def answers_to(self, model_path: str) -> bool:
        wanted = model_path.lower()
        return wanted in {self.name.lower(), *(hf_id.lower() for hf_id in self.hf_ids)}


@dataclass(frozen=True, slots=True)
class FoundModel:
    checkpoint: Checkpoint
    source: str


@cache
def presets() -> tuple[Preset, ...]:
    found = []
    for file in sorted((_PRESETS / "models").glob("*.json")):
        data = json.loads(file.read_text())
        found.append(Preset(file.stem, tuple(data["hf_ids"]), data["source"], data["config"]))
    return tuple(found)


def find_model(model_path: str, environ: Mapping[str, str]) -> FoundModel:
    """What the server would find at `model_path`, as far as this machine can know."""
    folder = Path(model_path)
    if folder.is_dir():
        return _from_file(folder / "config.json")
    preset = next((preset for preset in presets() if preset.answers_to(model_path)), None)
    if preset is not None:
        return FoundModel(Checkpoint(preset.config), f"preset {preset.name}")
    cached = _in_hub_cache(model_path, environ)
    if cached is not None:
        return _from_file(cached)
    names = ", ".join(preset.name for preset in presets())
    raise UsageError(
        f"no model at {model_path!r}: it is no folder here, no preset and not in the Hugging Face cache",
        f"pass a folder that holds its config.json, or one of the presets: {names}",
    )


def _from_file(file: Path) -> FoundModel:
    if not file.is_file():
        raise UsageError(f"{file} is missing", "a model folder holds the checkpoint's config.json")
    modelopt = file.with_name("hf_quant_config.json")
    checkpoint = _checked(Checkpoint(_read_object(file)), file)
    if not modelopt.is_file():
        return FoundModel(checkpoint, str(file))
    checkpoint = _checked(replace(checkpoint, quant_file=_read_object(modelopt)), modelopt)
    return FoundModel(checkpoint, f"{file} and {modelopt.name}")


def _read_object(file: Path) -> dict[str, Any]:
    if file.stat().st_size > _LARGEST_CONFIG:
        raise UsageError(f"{file} has {file.stat().st_size} bytes: no config.json is that large")
    try:
        hf = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise UsageError(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(hf, dict):
        raise UsageError(f"{file} holds a {type(hf).__name__}, not an object")
    return hf


def _checked(checkpoint: Checkpoint, file: Path) -> Checkpoint:
    """Members that nobody looks at while reading are checked afterwards: a string may stand for a number."""
    try:
        from_plain(ModelConfig, to_plain(checkpoint.model_config()), "model")
    except Unsupported:
        return checkpoint
    except (ConfigError, WrongMember) as error:
        raise UsageError(f"{file}: {error}") from error
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise UsageError(f"{file}: not a model's config: {type(error).__name__}: {error}") from error
    return checkpoint


def _in_hub_cache(model_path: str, environ: Mapping[str, str]) -> Path | None:
    """`hub/models--<org>--<name>/snapshots/<revision>/config.json`, the revision that `main` names."""
    if model_path.count("/") != 1 or model_path.startswith((".", "/")):
        return None
    home = Path(environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    hub = Path(environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    repository = hub / ("models--" + model_path.replace("/", "--"))
    main = repository / "refs" / "main"
    if not main.is_file():
        return None
    config = repository / "snapshots" / Path(main.read_text().strip()).name / "config.json"
    return config if config.is_file() else None

"""From a model path to its shape: a folder, a preset or the local Hugging Face cache; no download."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from runtime.server.checkpoint import Checkpoint
from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError, Unsupported
from sgl_tune.errors import UsageError
from sgl_tune.reading import read_object, read_text
from sgl_tune.records import WrongMember, from_plain, to_plain

DEMO = "demo-moe"
_PRESETS = Path(__file__).parents[1] / "presets"
_LARGEST_REF = 1 << 12


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
    if not os.path.lexists(file):
        raise UsageError(f"{file} is missing", "a model folder holds the checkpoint's config.json")
    modelopt = file.with_name("hf_quant_config.json")
    checkpoint = checked(Checkpoint(read_object(file)), file)
    if not modelopt.is_file():
        return FoundModel(checkpoint, str(file))
    checkpoint = checked(replace(checkpoint, quant_file=read_object(modelopt)), modelopt)
    return FoundModel(checkpoint, f"{file} and {modelopt.name}")


def checked(checkpoint: Checkpoint, file: Path | str) -> Checkpoint:
    """Members that nobody looks at while reading are checked afterwards: a string may stand for a number."""
    try:
        _ = checkpoint.context_length
        with suppress(Unsupported):
            from_plain(ModelConfig, to_plain(checkpoint.model_config()), "model")
    except (ConfigError, WrongMember) as error:
        raise UsageError(f"{file}: {error}") from error
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise UsageError(f"{file}: not a model's config: {why}") from error
    return checkpoint


def _in_hub_cache(model_path: str, environ: Mapping[str, str]) -> Path | None:
    """`hub/models--<org>--<name>/snapshots/<revision>/config.json`, the revision that `main` names."""
    if model_path.count("/") != 1 or model_path.startswith((".", "/")):
        return None
    home = Path(environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    hub = Path(environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    repository = hub / ("models--" + model_path.replace("/", "--"))
    main = repository / "refs" / "main"
    if not os.path.lexists(main):
        return None
    revision = read_text(main, "download the model again, or name its folder", _LARGEST_REF).strip()
    config = repository / "snapshots" / Path(revision).name / "config.json"
    return config if _is_file(config) else None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name of any length, with any byte in it
        return False

"""From a model path to its shape: a folder, a preset or the local Hugging Face cache; no download."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError
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
    """`declared` is what config.json alone says: SGLang resolves its arguments from that.

    ModelOpt may write how it quantized the weights into a file of its own, which only the loader reads.
    """

    config: ModelConfig
    source: str
    declared: ModelConfig


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
        model = ModelConfig.from_hf(preset.config)
        return FoundModel(model, f"preset {preset.name}", declared=model)
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
    hf = _read_object(file)
    declared = _checked_model(hf, file)
    modelopt = file.with_name("hf_quant_config.json")
    if declared.checkpoint_quantization is not None or not modelopt.is_file():
        return FoundModel(declared, str(file), declared)
    section = {"quant_method": "modelopt", **_section(_read_object(modelopt))}
    quantized = _checked_model({**hf, "quantization_config": section}, modelopt)
    return FoundModel(quantized, f"{file} and {modelopt.name}", declared)


def _section(content: Mapping[str, Any]) -> Mapping[str, Any]:
    section = content.get("quantization")
    return section if isinstance(section, Mapping) else {}


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


def _checked_model(hf: Mapping[str, Any], file: Path) -> ModelConfig:
    """Members that nobody looks at while reading are checked afterwards: a string may stand for a number."""
    try:
        return from_plain(ModelConfig, to_plain(ModelConfig.from_hf(hf)), "model")
    except (ConfigError, WrongMember) as error:
        raise UsageError(f"{file}: {error}") from error
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise UsageError(f"{file}: not a model's config: {type(error).__name__}: {error}") from error


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

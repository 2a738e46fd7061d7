"""From a model path to its shape: a file, a folder, the local Hugging Face cache or a preset; no download."""

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
from runtime.server.errors import ConfigError, UnknownModel, Unsupported
from runtime.server.nearest import meant
from sgl_tune.deployment.hub_cache import hub_config, is_hub_id
from sgl_tune.errors import UsageError
from sgl_tune.reading import read_object
from sgl_tune.records import WrongMember, from_plain, to_plain

DEMO = "demo-moe"
_FILE = "config.json"
_PRESETS = Path(__file__).parents[1] / "presets"


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


@dataclass(frozen=True, slots=True)
class Sought:
    """`path` as the server's command has it; `files`: where it lies here, if elsewhere; `config`: the file,
    or the preset, that the user named in their place."""

    path: str
    files: str | None = None
    config: Path | None = None
    revision: str | None = None


def find_model(sought: Sought | str, environ: Mapping[str, str]) -> FoundModel:
    """What the server would find, as far as this machine can know: a file that was named, a folder, the
    Hugging Face cache, a preset."""
    if isinstance(sought, str):
        sought = Sought(sought)
    model_path, unsaid = sought.files or sought.path, ""
    if sought.revision is not None:
        unsaid = f", whatever --revision {sought.revision} has"
    if sought.config is not None:
        return _named(sought.config)
    if Path(model_path).is_dir():
        found = _from_file(Path(model_path) / _FILE)
        return replace(found, source=found.source + unsaid)
    cached = hub_config(model_path, environ, sought.revision)
    if cached is not None:
        found = _from_file(cached)
        return replace(found, source=f"the Hugging Face cache, {found.source}")
    preset = _preset_of(model_path)
    if preset is not None:
        return FoundModel(Checkpoint(preset.config), f"preset {preset.name}{unsaid}")
    raise _not_found(model_path)


def _preset_of(name: str) -> Preset | None:
    return next((preset for preset in presets() if preset.answers_to(name)), None)


def _named(config: Path) -> FoundModel:
    """By --model-config."""
    if os.path.lexists(config):
        return _from_file(config)
    preset = _preset_of(str(config))
    if preset is None:
        raise UsageError(
            f"--model-config {config}: there is no such file, and no such preset",
            _near(config.name) or f"the presets are {_names()}",
        )
    return FoundModel(Checkpoint(preset.config), f"preset {preset.name}, as --model-config says")


def _not_found(model_path: str) -> UsageError:
    near = _near(model_path.rpartition("/")[2])
    ways = [f"name its {_FILE}, or a preset of its shape, with --model-config: {_names()}"]
    if is_hub_id(model_path):
        ways.insert(0, f"`hf download {model_path} {_FILE}`")
    return UsageError(
        f"no model at {model_path!r}: it is no folder here, no preset and not in the Hugging Face cache",
        f"{f'{near} ' if near else ''}{'; or '.join(ways)}",
    )


def _names() -> str:
    return ", ".join(preset.name for preset in presets())


def _near(name: str) -> str | None:
    """What differs in a number is another model; one may not be typed to its end."""
    digits = _digits(name)
    return meant(name, (one.name for one in presets() if _digits(one.name).startswith(digits)))


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


def _from_file(file: Path) -> FoundModel:
    if not os.path.lexists(file):
        remedy = f"a model folder holds the checkpoint's {file.name}; --model-config names one elsewhere"
        raise UsageError(f"{file} is missing", remedy)
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
        with suppress(Unsupported, UnknownModel):
            from_plain(ModelConfig, to_plain(checkpoint.model_config()), "model")
    except (ConfigError, WrongMember) as error:
        raise UsageError(f"{file}: {error}") from error
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise UsageError(f"{file}: not a model's config: {why}") from error
    return checkpoint

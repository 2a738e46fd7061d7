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

from runtime.server import params_json
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import ModelConfig
from runtime.server.decoders.dense import MODULES, DenseFiles, dense_folders
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.nearest import meant
from runtime.server.quantization import OWN_FILES
from sgl_tune.deployment.hub_cache import hub_config, is_hub_id
from sgl_tune.errors import UsageError
from sgl_tune.reading import read_list, read_object
from sgl_tune.records import WrongMember, from_plain, to_plain

DEMO = "demo-moe"
_PRESETS = Path(__file__).parents[1] / "presets"
_MOST_NAMES = 6
_A_LAYER_EACH = ("layer_kinds", "attention_kinds")


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
    is_draft: bool = False


def find_model(sought: Sought | str, environ: Mapping[str, str]) -> FoundModel:
    """What the server would find, as far as this machine can know: a file that was named, a folder, the
    Hugging Face cache, a preset."""
    if isinstance(sought, str):
        sought = Sought(sought)
    model_path, file = sought.files or sought.path, _file_of(sought.path)
    preset = _preset_of(model_path)
    if sought.config is not None:
        return _beside(_named(sought.config, sought.path), preset)
    if Path(model_path).is_dir():
        return _whatever_revision(_from_file(Path(model_path) / file, sought.path), sought)
    cached = hub_config(model_path, environ, sought.revision, file)
    if cached is not None:
        found = _from_file(cached, sought.path)
        return _beside(replace(found, source=f"the Hugging Face cache, {found.source}"), preset)
    if preset is not None:
        return _whatever_revision(FoundModel(Checkpoint(preset.config), f"preset {preset.name}"), sought)
    raise _not_found(model_path, sought.is_draft, file)


def _file_of(path: str) -> str:
    return params_json.FILE if params_json.is_read(path) else "config.json"


def _preset_of(name: str) -> Preset | None:
    return next((preset for preset in presets() if preset.answers_to(name)), None)


def _named(config: Path, path: str) -> FoundModel:
    """By --model-config."""
    if os.path.lexists(config):
        return _from_file(config, path)
    preset = _preset_of(str(config))
    if preset is None:
        raise UsageError(
            f"--model-config {config}: there is no such file, and no such preset",
            _near(config.name) or f"the presets are {_names()}",
        )
    return FoundModel(Checkpoint(preset.config), f"preset {preset.name}, as --model-config says")


def _whatever_revision(found: FoundModel, sought: Sought) -> FoundModel:
    if sought.revision is None:
        return found
    return replace(found, source=f"{found.source}, whatever --revision {sought.revision} has")


def _beside(found: FoundModel, preset: Preset | None) -> FoundModel:
    """Says so where a preset of the same name tells another model than the one that counts."""
    if preset is None:
        return found
    one, other = _shape(found.checkpoint), _shape(Checkpoint(preset.config))
    apart = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    if not apart:
        return replace(found, source=f"{found.source}, as preset {preset.name} has it")
    names = ", ".join(apart[:_MOST_NAMES]) + (" and more" if len(apart) > _MOST_NAMES else "")
    return replace(found, source=f"{found.source}; preset {preset.name} differs in {names} and is not used")


def _shape(checkpoint: Checkpoint) -> dict[str, Any]:
    """Without what is told layer by layer: their number is told, too."""
    try:
        shape = to_plain(checkpoint.model_config())
    except Unsupported:
        return dict(checkpoint.hf)
    nested = {name: shape.pop(name) or {} for name in ("moe", "mla")}
    flat = {f"{name}.{part}": value for name, section in nested.items() for part, value in section.items()}
    return {name: value for name, value in {**shape, **flat}.items() if name not in _A_LAYER_EACH}


def _not_found(model_path: str, is_draft: bool, file: str) -> UsageError:
    near = _near(model_path.rpartition("/")[2])
    named = f"name its {file}, or a preset of its shape, with --model-config: {_names()}"
    ways = [f"give the folder that holds its {file}" if is_draft else named]
    if is_hub_id(model_path):
        ways.insert(0, f"`hf download {model_path} {file}`")
    which = "draft model" if is_draft else "model"
    return UsageError(
        f"no {which} at {model_path!r}: it is no folder here, no preset and not in the Hugging Face cache",
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


def _from_file(file: Path, path: str) -> FoundModel:
    """Of the model that a server finds at `path`."""
    if not os.path.lexists(file):
        is_own = file.name == params_json.FILE
        why = ", of which SGLang reads this one by the folder's name" if is_own else ""
        raise UsageError(
            f"{file} is missing",
            f"a model folder holds the checkpoint's {file.name}{why}; --model-config names one that lies "
            "elsewhere",
        )
    modelopt = file.with_name("hf_quant_config.json")
    told, beside = _config_in(file, path), _of_2023(file)
    checkpoint = checked(Checkpoint(told, unread_files=beside, dense_files=_dense_beside(file, told)), file)
    if not modelopt.is_file():
        return FoundModel(checkpoint, str(file))
    checkpoint = checked(replace(checkpoint, quant_file=read_object(modelopt)), modelopt)
    return FoundModel(checkpoint, f"{file} and {modelopt.name}")


def _of_2023(file: Path) -> tuple[str, ...]:
    """Where it was quantized by tools of 2023; a server that is told so looks there."""
    names = {name for of_method in OWN_FILES.values() for name in of_method}
    return tuple(sorted(name for name in names if file.with_name(name).is_file()))


def _dense_beside(file: Path, told: dict[str, Any]) -> DenseFiles:
    """Of a class that has what sentence-transformers keeps there."""
    modules = file.with_name(MODULES)
    if told.get("model_type") != "gemma3_text" or not modules.is_file():
        return DenseFiles()
    listed = read_list(modules)
    files = {one: file.parent / one / "config.json" for one in dense_folders(listed)}
    return DenseFiles(listed, {one: read_object(path) for one, path in files.items() if path.is_file()})


def _config_in(file: Path, path: str) -> dict[str, Any]:
    told = read_object(file)
    if file.name != params_json.FILE:
        return told
    try:
        return params_json.config_of(told, path)
    except ConfigError as error:
        raise UsageError(f"{file}: {error}") from error


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

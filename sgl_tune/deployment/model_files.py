"""Find a model's config.json: a file, a folder, the local Hugging Face cache, or a preset."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from runtime.server.nearest import meant
from sgl_tune.errors import UsageError
from sgl_tune.reading import is_file, read_object, read_text

DEMO = "demo-moe"
NO_MODEL = f"no model given: the embedded demo model, {DEMO}"
HUB_ENVIRONMENT = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_LARGEST_REF = 1 << 12
_FILE, MODELOPT = "config.json", "hf_quant_config.json"
_PRESETS = Path(__file__).parents[1] / "presets"


@dataclass(frozen=True, slots=True)
class Preset:
    name: str
    hf_ids: tuple[str, ...]
    source: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A config.json, and ModelOpt's hf_quant_config.json if it lies beside it."""

    config: Mapping[str, Any]
    source: str
    quantization: Mapping[str, Any] = field(default_factory=dict)


@cache
def presets() -> tuple[Preset, ...]:
    found = []
    for file in sorted((_PRESETS / "models").glob("*.json")):
        data = json.loads(file.read_text())
        found.append(Preset(file.stem, tuple(data["hf_ids"]), data["source"], data["config"]))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Sought:
    """A model to find. `path`: as in the server's command. `files`: its folder here, if another. `config`:
    the config.json or preset that --model-config names in place of the model's own."""

    path: str
    files: str | None = None
    config: Path | None = None
    revision: str | None = None


def find_files(sought: Sought | str, environ: Mapping[str, str]) -> ModelFiles:
    """Return the model's files as far as this machine has them: a named file, a folder, the Hugging Face
    cache, or a preset."""
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
        return ModelFiles(preset.config, f"preset {preset.name}{unsaid}")
    raise _not_found(model_path)


def _preset_of(name: str) -> Preset | None:
    wanted = name.lower()
    return next((one for one in presets() if wanted in map(str.lower, (one.name, *one.hf_ids))), None)


def _named(config: Path) -> ModelFiles:
    """Return the file or the preset that --model-config names."""
    if os.path.lexists(config):
        return _from_file(config)
    preset = _preset_of(str(config))
    if preset is None:
        raise UsageError(
            f"--model-config {config}: there is no such file, and no such preset",
            _near(config.name) or f"the presets are {_names(config.name)}",
        )
    return ModelFiles(preset.config, f"preset {preset.name}, as --model-config says")


def _not_found(model_path: str) -> UsageError:
    near, named = _near(name := model_path.rpartition("/")[2]), _preset_of(name)
    ways = [f"name its {_FILE}, or a preset of its shape, with --model-config: {_names(name)}"]
    if named:
        same = f"--model-config {named.name}"
        near, ways = None, [f"if it is {named.name}: {same}; else name its {_FILE} there"]
    if is_hub_id(model_path):
        ways.insert(0, f"`hf download {model_path} {_FILE}`")
    return UsageError(
        f"no model at {model_path!r}: it is no folder here, no preset and not in the Hugging Face cache",
        f"{f'{near} ' if near else ''}{'; or '.join(ways)}",
    )


def _names(name: str) -> str:
    names = [preset.name for preset in presets()]
    return ", ".join(get_close_matches(name, names, len(names), 0))


def _near(name: str) -> str | None:
    """Return the preset that was probably meant. Other digits are another model; a name may be cut off."""

    def digits(name: str) -> str:
        return "".join(filter(str.isdigit, name))

    return meant(name, (one.name for one in presets() if digits(one.name).startswith(digits(name))))


def _from_file(file: Path) -> ModelFiles:
    if not os.path.lexists(file):
        remedy = f"a model folder holds the checkpoint's {file.name}; --model-config names one elsewhere"
        raise UsageError(f"{file} is missing", remedy)
    found, modelopt = ModelFiles(read_object(file), str(file)), file.with_name(MODELOPT)
    if not modelopt.is_file():
        return found
    return replace(found, quantization=read_object(modelopt), source=f"{file} and {MODELOPT}")


def is_hub_id(model_path: str) -> bool:
    return bool(_HUB_ID.fullmatch(model_path)) and not model_path.startswith(".")


def hub_config(model_path: str, environ: Mapping[str, str], revision: str | None = None) -> Path | None:
    """Return the config.json in the local hub cache of the revision that a server would start:
    `models--<org>--<name>/snapshots/<commit>/config.json`, with the commit that refs/<revision> names."""
    if not is_hub_id(model_path):
        return None
    repository = _hub(environ) / ("models--" + model_path.replace("/", "--"))
    named = _commit_named(repository / "refs", revision or "main")
    commit = named if named is not None else revision
    if not commit:
        return None
    config = repository / "snapshots" / Path(commit).name / "config.json"
    return config if is_file(config) else None


def _hub(environ: Mapping[str, str]) -> Path:
    named = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return Path(named).expanduser()
    home = environ.get("HF_HOME")
    above = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(home) if home else Path(above) / "huggingface").expanduser() / "hub"


def _commit_named(refs: Path, revision: str) -> str | None:
    ref = refs / revision
    if ".." in Path(revision).parts or not os.path.lexists(ref):
        return None
    return read_text(ref, "download the model again, or name its folder", _LARGEST_REF).strip()

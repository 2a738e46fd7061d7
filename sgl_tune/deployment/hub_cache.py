"""The local Hugging Face cache: the revision of a model that a server starts from. Nothing is downloaded.

HF_HUB_OFFLINE changes nothing: a server that may not download starts from what is here, and one that may from
what `main` names there, which is what was downloaded last as far as anybody here knows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from sgl_tune.reading import read_text

HUB_ENVIRONMENT = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
_ID = re.compile(r"[\w.-]+/[\w.-]+")
_LARGEST_REF = 1 << 12


def is_hub_id(model_path: str) -> bool:
    return bool(_ID.fullmatch(model_path)) and not model_path.startswith(".")


def hub_config(model_path: str, environ: Mapping[str, str], revision: str | None = None) -> Path | None:
    """`models--<org>--<name>/snapshots/<commit>/config.json`, of the commit that refs/<revision> names."""
    if not is_hub_id(model_path):
        return None
    repository = _hub(environ) / ("models--" + model_path.replace("/", "--"))
    named = _named(repository / "refs", revision or "main")
    commit = named if named is not None else revision
    if not commit:
        return None
    config = repository / "snapshots" / Path(commit).name / "config.json"
    return config if _is_file(config) else None


def _hub(environ: Mapping[str, str]) -> Path:
    named = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return Path(named).expanduser()
    home = environ.get("HF_HOME")
    above = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(home) if home else Path(above) / "huggingface").expanduser() / "hub"


def _named(refs: Path, revision: str) -> str | None:
    ref = refs / revision
    if ".." in Path(revision).parts or not os.path.lexists(ref):
        return None
    return read_text(ref, "download the model again, or name its folder", _LARGEST_REF).strip()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name of any length, with any byte in it
        return False

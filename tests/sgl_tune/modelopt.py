"""Checkpoints as ModelOpt writes them, of presets and of plain folders, for tests that ask for its layers."""

from __future__ import annotations

import atexit
import json
import os
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from sgl_tune.deployment.models import presets

_FOLDER, _OWNER = Path(mkdtemp(prefix="modelopt")), os.getpid()


@atexit.register
def _remove() -> None:
    """By who made it: a process that a test forks ends with the same words."""
    if os.getpid() == _OWNER:
        rmtree(_FOLDER)


def as_checkpoint(flags: dict[str, Any]) -> dict[str, Any]:
    """SGLang asks the checkpoint for what `quantization: modelopt_fp8` says."""
    if flags.get("quantization") != "modelopt_fp8":
        return flags
    return {**flags, "model_path": in_modelopt(flags["model_path"], "FP8")}


@cache
def in_modelopt(model: str, algorithm: str, *plain: str) -> str:
    """`plain`: layers that stay so, beside the head."""
    shipped = {preset.name: preset.config for preset in presets()}
    config = shipped.get(model) or json.loads((Path(model) / "config.json").read_text())
    section = {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head", *plain]}
    folder = _FOLDER / f"{Path(model).name}-{algorithm}"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": section}))
    return str(folder)

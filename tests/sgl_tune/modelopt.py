"""Checkpoints as ModelOpt writes them, of presets and of plain folders, for tests that ask for its layers."""

import json
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from sgl_tune.deployment.model_files import presets


@cache
def _folder() -> Path:
    return Path(mkdtemp(prefix="modelopt"))


def remove() -> None:
    """At a session's end, as tests/conftest.py asks for."""
    if _folder.cache_info().currsize:
        rmtree(_folder())


def as_checkpoint(flags: dict[str, Any]) -> dict[str, Any]:
    """With a checkpoint that is quantized as --quantization says."""
    algorithm = {"modelopt_fp8": "FP8", "modelopt_fp4": "NVFP4"}.get(flags.get("quantization", ""))
    return (
        flags if algorithm is None else {**flags, "model_path": in_modelopt(flags["model_path"], algorithm)}
    )


@cache
def in_modelopt(model: str, algorithm: str, *plain: str) -> str:
    """`plain`: layers that stay so, beside the head."""
    folder = _folder() / f"{Path(model).name}-{algorithm}"
    folder.mkdir()
    ignore = ["lm_head", *plain]
    return quantized(folder, model, quant_method="modelopt", quant_algo=algorithm, ignore=ignore)


def quantized(folder: Path, model: str, **section: object) -> str:
    """A preset or a plain folder, with a quantization_config, in `folder`."""
    shipped = {preset.name: preset.config for preset in presets()}
    config = shipped.get(model) or json.loads((Path(model) / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": section}))
    return str(folder)

"""A folder of `save_pretrained`: config.json, and tensors by name in one or several safetensors files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from runtime.layers.loading import Index
from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError
from runtime.server.hf_config import model_config


class Checkpoint:
    """Reads just the part of a tensor that is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise ConfigError(f"{folder} holds no *.safetensors: is it a folder of save_pretrained?")
        self._files = [_open(file) for file in files]
        self._where = {name: opened for opened in self._files for name in opened.keys()}  # noqa: SIM118

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def read(self, name: str, index: Index) -> torch.Tensor:
        if not index:
            return self._where[name].get_tensor(name)
        return self._where[name].get_slice(name)[index]

    def describe(self) -> str:
        return str(self.folder)


def read_config(folder: Path) -> ModelConfig:
    file = folder / "config.json"
    try:
        return model_config(json.loads(file.read_text()))
    except FileNotFoundError:
        raise ConfigError(f"{file} does not exist: pass a folder with a model's config.json") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: {error}") from None


def _open(file: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(file, "pt")
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{file} is not a safetensors file: {error}") from None

"""A folder of `save_pretrained`: tensors by name in one or several safetensors files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from runtime.layers.loading import Index
from runtime.server.errors import ConfigError


class Checkpoint:
    """Reads just the part of a tensor that is asked for. A block of experts is called as other MLPs are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise ConfigError(f"{folder} holds no *.safetensors: is it a folder of save_pretrained?")
        self._where = {
            name.replace(".block_sparse_moe.", ".mlp."): (opened, name)
            for opened in map(_open, files)
            for name in opened.keys()  # noqa: SIM118
        }

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def read(self, name: str, index: Index) -> torch.Tensor:
        opened, own = self._where[name]
        return opened.get_slice(own)[index] if index else opened.get_tensor(own)

    def describe(self) -> str:
        return str(self.folder)


def _open(file: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(file, "pt")
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{file} is not a safetensors file: {error}") from None

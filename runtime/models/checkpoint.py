"""A folder of `save_pretrained`: tensors by name in one or several safetensors files.

Those of a multimodal model's language model have the names that they have in a model of text alone, and a
block of experts that of other MLPs; sentence-transformers' matrices are called by their folders.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from runtime.layers.loading import Index
from runtime.server.decoders.text_names import alone
from runtime.server.errors import ConfigError

_OF_BERT = {f".attention.self.{one}.": f".attention.{one[0]}_proj." for one in ("query", "key", "value")}
_BARE = ("wte.", "wpe.", "h.", "ln_f.")  # GPT-2's, as it is published


class Checkpoint:
    """Reads just the part of a tensor that is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise ConfigError(f"{folder} holds no *.safetensors: is it a folder of save_pretrained?")
        self._files = [_open(file) for file in files]
        self._where = {
            _whole(alone(name)).replace(".block_sparse_moe.", ".mlp."): (opened, name)
            for opened in self._files
            for name in opened.keys()  # noqa: SIM118
        }
        for file in sorted(folder.glob("*_Dense/model.safetensors")):
            opened = _open(file)
            own = {name: f"linear.{name.rpartition('.')[2]}" for name in opened.keys()}  # noqa: SIM118
            self._where |= {f"{file.parent.name}.{said}": (opened, name) for name, said in own.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def shape(self, name: str) -> tuple[int, ...]:
        opened, own = self._where[name]
        return tuple(opened.get_slice(own).get_shape())

    def read(self, name: str, index: Index) -> torch.Tensor:
        opened, own = self._where[name]
        return opened.get_slice(own)[index] if index else opened.get_tensor(own)

    def describe(self) -> str:
        return str(self.folder)


def _whole(name: str) -> str:
    name = name.removeprefix("bert.").removeprefix("roberta.")
    for own, usual in _OF_BERT.items():
        name = name.replace(own, usual)
    return f"transformer.{name}" if name.startswith(_BARE) else name


def _open(file: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(file, "pt")
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{file} is not a safetensors file: {error}") from None

"""Matrices behind a pooled row, as sentence-transformers tells them: modules.json, and a config.json of each.

_build_sentence_transformer_projector of srt/models/gemma3_causal.py, which makes none where it ends at one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.server.decoders.fields import HF, Fields
from runtime.server.errors import Unsupported
from runtime.server.table_config import DenseConfig

MODULES = "modules.json"
_DENSE, _FOLDER = "sentence_transformers.models.Dense", re.compile(r"\d+_Dense")
_PLAIN = "torch.nn.modules.linear.Identity"


@dataclass(frozen=True, slots=True)
class DenseFiles:
    """`modules`: what modules.json says, None where there is none; `configs`: by their folders."""

    modules: Any = None
    configs: Mapping[str, HF] = field(default_factory=dict)


NO_DENSE = DenseFiles()


def dense_folders(modules: Any) -> Iterator[str]:
    """Those whose files are read."""
    for one in modules if isinstance(modules, list) else ():
        if isinstance(one, Mapping) and one.get("type") == _DENSE and _is_folder(one.get("path")):
            yield one["path"]


def read_dense(files: DenseFiles, width: int) -> tuple[DenseConfig, ...]:
    found: list[DenseConfig] = []
    for one in files.modules or ():
        if not isinstance(one, Mapping):
            raise Unsupported(f"{MODULES}: {repr(one)[:60]} is no module")
        if one.get("type") == _DENSE:
            found.append(_dense(one.get("path"), files))
    widths = [width, *(one.outputs for one in found)]
    for before, one in zip(widths, found, strict=False):
        if one.inputs != before:
            raise Unsupported(f"{one.folder}/config.json: in_features is {one.inputs}: a row has {before}")
    return tuple(found)


def _dense(folder: Any, files: DenseFiles) -> DenseConfig:
    if not _is_folder(folder):
        raise Unsupported(
            f"{MODULES}: a dense layer is in {repr(folder)[:60]}: here they are in 2_Dense and alike"
        )
    if folder not in files.configs:
        raise Unsupported(f"{folder}/config.json is missing, and SGLang makes no dense layer then")
    told = Fields(files.configs[folder], {"bias": True})
    opens = told.get("activation_function")
    if opens not in (None, _PLAIN):
        raise Unsupported(
            f"{folder}/config.json: activation_function is {repr(opens)[:60]}: here is {_PLAIN}"
        )
    return DenseConfig(folder, told.size("in_features"), told.size("out_features"), told.flag("bias"))


def _is_folder(path: Any) -> bool:
    return isinstance(path, str) and _FOLDER.fullmatch(path) is not None

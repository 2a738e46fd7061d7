"""Imports, once per process, what a start needs of a server."""

from __future__ import annotations

import sys
from importlib import import_module, metadata
from typing import Any

MODULES = (
    "sglang.srt.server_args",
    "sglang.srt.entrypoints.engine",
    "sglang.srt.managers.scheduler",
    "sglang.srt.models.registry",
)
TOLD = ("sglang", "torch", "flashinfer-python", "triton", "transformers", "sglang-kernel", "sgl-kernel")


def import_server() -> None:
    for name in MODULES:
        import_module(name)


def versions() -> dict[str, Any]:
    import torch

    found = {}
    for name in TOLD:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "stream": 1,
        "python": ".".join(map(str, sys.version_info[:3])),
        "cuda": torch.version.cuda,
        "versions": found,
    }

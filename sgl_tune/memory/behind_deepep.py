"""How a server behind DeepEP is predicted: by its own configs where they can be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from runtime.server.config import RuntimeConfig
from runtime.server.deepep import DeepEP, configs_of
from runtime.server.errors import ConfigError
from runtime.server.moe import runner_behind_deepep
from runtime.server.shape import Server
from sgl_tune.reading import bounded_bytes
from sgl_tune.units import shown

_LARGEST = 1 << 20


def behind_deepep(server: Server, runtime: RuntimeConfig) -> tuple[RuntimeConfig, tuple[str, ...]]:
    """The experts of other kernels than DeepGEMM's take as much in the main."""
    notes = []
    runner = runner_behind_deepep(server)
    if runner != "deep_gemm":
        notes.append(f"predicted with deep_gemm's buffers in place of {runner}'s, which are not known")
    deepep = _with_its_file(runtime.deepep or DeepEP())
    if deepep.unread:
        told = shown(deepep.unread)
        notes.append(f"predicted with DeepEP's own configs in place of those of --deepep-config {told}")
    return replace(runtime, moe_runner_backend="deep_gemm", deepep=deepep), tuple(notes)


def _with_its_file(deepep: DeepEP) -> DeepEP:
    """It may lie on another machine."""
    if deepep.unread is None:
        return deepep
    try:
        text = bounded_bytes(Path(deepep.unread), _LARGEST).decode()
    except (OSError, ValueError):
        return deepep
    configs = configs_of(text)
    if configs is None:
        raise ConfigError(f"--deepep-config {shown(deepep.unread)} is no JSON")
    return replace(deepep, configs=configs, unread=None)

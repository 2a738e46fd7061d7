"""The interface of a mixture-of-experts kernel, and its names as SGLang spells them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module

import torch

from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.backends import BACKENDS, MoEBackendRow, backend_row
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError
from runtime.server.parallel import RankLayout


class MoEBackend(ABC):
    """Computes this rank's part of the experts' weighted sum: zero where a token's experts live elsewhere."""

    def __init__(self, model: ModelConfig, runtime: RuntimeConfig, layout: RankLayout) -> None:
        assert model.moe is not None
        self.model, self.moe, self.runtime, self.layout = model, model.moe, runtime, layout

    def prepare(self, weights: ExpertWeights) -> ExpertWeights:
        """Once after loading: the same weights in the order and layout that the kernel wants."""
        return weights

    def tell_free(self, nbytes: int) -> None:  # noqa: B027
        """What the GPU has left before the first forward."""

    @abstractmethod
    def forward(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        """x [T, H] -> [T, H]."""


def make_backend(
    name: str,
    model: ModelConfig,
    runtime: RuntimeConfig,
    layout: RankLayout,
    device: torch.device | None = None,
) -> MoEBackend:
    row = backend_row(name)
    if row.stood_in and not _has_kernels(row, runtime, "cpu" if device is None else device.type):
        own = ", ".join(known.name for known in BACKENDS.values() if not known.stood_in)
        raise ConfigError(f"--moe-runner-backend {name}: this runtime has {own}")
    module, _, cls = row.kernels.partition(":")
    # Imported when asked for: FlashInfer takes seconds.
    return getattr(import_module(f"runtime.moe.{module}"), cls)(model, runtime, layout)


def _has_kernels(row: MoEBackendRow, runtime: RuntimeConfig, device: str) -> bool:
    return (row.is_predicted and device == "meta") or (device != "cpu" and runtime.sm_major in row.own_majors)

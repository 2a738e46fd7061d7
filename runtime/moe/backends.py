"""The interface of a mixture-of-experts kernel, and the backends' names in SGLang."""

from abc import ABC, abstractmethod
from importlib import import_module

import torch

from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.backends import BACKENDS, backend_row
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError
from runtime.server.parallel import RankLayout


class MoEBackend(ABC):
    """Computes this rank's part of the experts' weighted sum; it is zero for experts on other ranks."""

    def __init__(self, model: ModelConfig, runtime: RuntimeConfig, layout: RankLayout) -> None:
        assert model.moe is not None
        self.model, self.moe, self.runtime, self.layout = model, model.moe, runtime, layout

    def prepare(self, weights: ExpertWeights) -> ExpertWeights:
        """Return the weights in the order and layout that the kernel reads. Called once, after loading."""
        return weights

    @abstractmethod
    def forward(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        """Compute [T, H] from x [T, H]."""


def make_backend(model: ModelConfig, runtime: RuntimeConfig, layout: RankLayout) -> MoEBackend:
    row = backend_row(runtime.kernels.moe)
    if not row.kernels:
        own = ", ".join(known.name for known in BACKENDS.values() if known.kernels)
        raise ConfigError(f"--moe-runner-backend {row.name}: this runtime has {own}")
    module, _, cls = row.kernels.partition(":")
    # Imported when asked for: FlashInfer takes seconds.
    return getattr(import_module(f"runtime.moe.{module}"), cls)(model, runtime, layout)

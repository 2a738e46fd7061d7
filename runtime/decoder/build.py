"""What all parts of a decoder share: the model, the server's settings, the rank's groups and device."""

from dataclasses import dataclass
from typing import Any

import torch

from runtime.forward.comm import Communicator
from runtime.forward.kv_pool import DTYPES
from runtime.layers.linear import Linear, Part
from runtime.layers.norm import RMSNorm
from runtime.layers.quantization import Scheme, scheme_of
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.quantized import Kind


@dataclass(frozen=True)
class Build:
    model: ModelConfig
    runtime: RuntimeConfig
    comm: Communicator
    device: torch.device
    dtype: torch.dtype

    def linear(self, parts: list[Part], cols: slice, *, scheme: Scheme | None = None, **how: Any) -> Linear:
        """Return a linear layer, stored as in the checkpoint unless `scheme` says otherwise."""
        chosen = self._scheme(self.kind_of([part.name for part in parts])) if scheme is None else scheme
        return Linear(parts, cols, self.dtype, self.device, scheme=chosen, **how)

    def kind_of(self, names: list[str]) -> Kind | None:
        return self.model.quantized.of_linear(names)

    def expert_scheme(self, name: str) -> Scheme:
        return self._scheme(self.model.quantized.of_experts(name))

    def _scheme(self, kind: Kind | None) -> Scheme:
        return scheme_of(kind, self.model, self.runtime)

    def norm(self, name: str, size: int, eps: float | None = None, rows: slice | None = None) -> RMSNorm:
        eps = self.model.style.rms_eps if eps is None else eps
        return RMSNorm(name, size, eps, self.dtype, self.device, rows)

    def norm_of_rows(self, name: str) -> RMSNorm:
        return self.norm(name, self.model.hidden_size)

    def vector(self, count: int, dtype: torch.dtype | None = None) -> torch.nn.Parameter:
        empty = torch.empty(count, dtype=dtype or self.dtype, device=self.device)
        return torch.nn.Parameter(empty, requires_grad=False)


def make_build(model: ModelConfig, runtime: RuntimeConfig, comm: Communicator, device: torch.device) -> Build:
    return Build(model, runtime, comm, device, DTYPES[runtime.dtype])

"""An MLP of whose gates a share is closed, the lowest of a token's: srt/models/gemma3n_causal.py.

By how those of all ranks are spread, as in the model; each of SGLang's ranks looks at its own alone.
"""

from __future__ import annotations

from statistics import NormalDist

import torch
import torch.nn.functional as F

from runtime.forward.comm import Communicator
from runtime.layers.linear import Linear
from runtime.layers.mlp import GatedMLP


class ClosedMLP(GatedMLP):
    def __init__(
        self, gate_up: Linear, down: Linear, activation: str, closed: float, comm: Communicator, ranks: int
    ) -> None:
        super().__init__(gate_up, down, activation)
        self.comm, self.ranks = comm, ranks
        self.deviations = NormalDist().inv_cdf(closed) if closed else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = self.gate_up(x)
        gate, up = both.chunk(2, dim=-1)
        if self.deviations is not None:
            gate = F.relu(gate - self._threshold(gate, self.deviations))
        both = torch.cat([gate, up], dim=-1)
        return self.down(self.activate(both))

    def _threshold(self, gate: torch.Tensor, deviations: float) -> torch.Tensor:
        if self.ranks == 1:
            mean, deviation = gate.mean(-1, keepdim=True), gate.std(-1, keepdim=True, unbiased=False)
            return mean + deviation * deviations
        variance, mean = torch.var_mean(gate.float(), -1, keepdim=True, unbiased=False)
        sums = self.comm.all_reduce(torch.cat([mean, variance + mean**2], dim=-1), "tp") / self.ranks
        mean, square = sums.split(1, dim=-1)
        return (mean + (square - mean**2).clamp(min=0) ** 0.5 * deviations).to(gate.dtype)

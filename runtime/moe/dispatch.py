"""How tokens reach the ranks that hold their experts, and how the answers come back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch

from runtime.moe.weights import TopK

Route = Callable[[torch.Tensor], TopK]


class Dispatcher(ABC):
    # Whether each rank computes the shared experts on its own rows alone, with all of their weights.
    replicates_shared_experts: ClassVar[bool]

    @property
    def breaks_graphs(self) -> bool:
        """Whether it cannot be captured, and runs eagerly in the midst of a graph."""
        return False

    @abstractmethod
    def dispatch(self, x: torch.Tensor, route: Route) -> tuple[torch.Tensor, TopK]:
        """This rank's rows -> the rows that its experts work on, and where each of them goes."""

    @abstractmethod
    def combine(self, out: torch.Tensor, rows: int) -> torch.Tensor:
        """The experts' partial sums -> this rank's finished rows."""

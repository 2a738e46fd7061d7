"""Layers with a state a request: the convolution before it, the recurrence, and the gated norm after."""

from runtime.layers.recurrence.base import Rows, recur
from runtime.layers.recurrence.gated_norm import GatedNorm

__all__ = ["GatedNorm", "Rows", "recur"]

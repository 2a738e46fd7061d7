"""Layers with a state a request: the convolution before it, the recurrence, and the gated norm after."""

from runtime.layers.recurrence.base import RecurrentInputs, Rows, convolve, recur
from runtime.layers.recurrence.gated_norm import GatedNorm

__all__ = ["GatedNorm", "RecurrentInputs", "Rows", "convolve", "recur"]

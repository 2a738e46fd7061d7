"""Layers with one state per request: the convolution before, the recurrence, and the gated norm after."""

from runtime.layers.recurrence.base import GatedNorm, causal_conv, recur
from runtime.layers.recurrence.reference import Rows

__all__ = ["GatedNorm", "Rows", "causal_conv", "recur"]

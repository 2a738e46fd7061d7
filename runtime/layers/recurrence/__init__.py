"""Layers with a state a request: the convolution before it, the recurrence, and the gated norm after."""

from runtime.layers.recurrence.base import RecurrentInputs, Rows, convolve, recur
from runtime.layers.recurrence.gated_norm import GatedNorm
from runtime.layers.recurrence.token_taps import convolve_by_tokens

__all__ = ["GatedNorm", "RecurrentInputs", "Rows", "convolve", "convolve_by_tokens", "recur"]

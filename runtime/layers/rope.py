"""Rotary position embedding: one table of cosines and sines per model, applied in place by a fused kernel."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from runtime.server.layer_config import RopeConfig, mscale
from runtime.simulate.kernel import in_place, kernel


class RopeTables(nn.Module):
    """Rotary tables. A table is made with the attention of its first layer, so that the temporaries of a long
    table are freed before most weights are loaded."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self._ropes: list[RopeConfig] = []

    def lay(self, rope: RopeConfig | None) -> str | None:
        """Make the table if it does not exist yet, and return its name."""
        if rope is None:
            return None
        if rope not in self._ropes:
            self.register_buffer(f"table_{len(self._ropes)}", rope_table(rope, self._device))
            self._ropes.append(rope)
        return f"table_{self._ropes.index(rope)}"

    def table(self, name: str | None) -> Tensor | None:
        return None if name is None else self.get_buffer(name)


def rope_table(rope: RopeConfig, device: torch.device) -> Tensor:
    """Return [max_position, rotary_dim] fp32: cosines, then sines."""
    frequencies, scale = _frequencies(rope, device)
    positions = torch.arange(rope.max_position, dtype=torch.float32, device=device)
    angles = positions[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=-1).mul_(scale)


def _frequencies(rope: RopeConfig, device: torch.device) -> tuple[Tensor, float]:
    exponents = torch.arange(0, rope.dim, 2, dtype=torch.float32, device=device) / rope.dim
    plain, given = 1.0 / (rope.theta**exponents), rope.parameters
    kind = given.get("rope_type", "default")
    if kind == "llama3":
        return _llama3(plain, given), 1.0
    if kind == "yarn":
        return _yarn(plain, given, rope.theta, rope.dim), _yarn_attention_factor(given)
    return plain / given["factor"] if kind == "linear" else plain, 1.0


def _llama3(plain: Tensor, rope: Mapping[str, Any]) -> Tensor:
    """Stretch long wavelengths by the factor, keep short ones, and blend those between."""
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] / (2 * math.pi / plain)
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return plain / rope["factor"] * (1 - keep) + plain * keep


def _yarn(plain: Tensor, rope: Mapping[str, Any], theta: float, dim: int) -> Tensor:
    original = rope["original_max_position_embeddings"]

    def dimension_of(rotations: float) -> float:
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = dimension_of(rope.get("beta_fast") or 32)
    high = dimension_of(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    index = torch.arange(dim // 2, dtype=torch.float32, device=plain.device)
    stretch = ((index - low) / ((high - low) or 0.001)).clamp(0, 1)
    return plain / rope["factor"] * stretch + plain * (1 - stretch)


def _yarn_attention_factor(rope: Mapping[str, Any]) -> float:
    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])
    factor, over, under = rope["factor"], rope.get("mscale"), rope.get("mscale_all_dim")
    if over and under:
        return mscale(factor, over) / mscale(factor, under)
    return mscale(factor, 1.0)


@kernel(in_place)
def rope_(q: Tensor, k: Tensor, table: Tensor, positions: Tensor, interleaved: bool) -> None:
    """Rotate the first `rotary_dim` values of each head of q [T, heads, D], k [T, kv heads, D], in place."""
    for x in (q, k):
        if x.is_cuda:
            from runtime.layers import kernels

            kernels.rope(x, table, positions, interleaved)
        else:
            _rotate(x, table, positions, interleaved)


def _rotate(x: Tensor, table: Tensor, positions: Tensor, interleaved: bool) -> None:
    dim = table.shape[1]
    cos, sin = table[positions].to(x.dtype).unsqueeze(1).chunk(2, dim=-1)
    rotary = x[..., :dim]
    first, second = (rotary[..., 0::2], rotary[..., 1::2]) if interleaved else rotary.chunk(2, dim=-1)
    turned = first * cos - second * sin
    second.copy_(second * cos + first * sin)
    first.copy_(turned)

"""Rotary position embedding: one table of cosines and sines a model, applied in place by one fused kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from runtime.layers.opaque import opaque_op
from runtime.server.decoders.rope import mscale
from runtime.server.layer_config import RopeConfig


def rope_table(rope: RopeConfig, device: torch.device) -> torch.Tensor:
    """[max_position, rotary_dim] fp32: cosines, then sines. Of a longrope, those of short batches lie before
    them: as many bytes as SGLang's two copies, which are as wide as the model's dtype."""
    if rope.long_from is not None:
        parts = _short_and_long(rope, device)
        return torch.cat([_table(range(rows), turns, scale) for rows, turns, scale in parts])
    return _table(range(rope.max_position), *_frequencies(rope, device))


def lengthened(table: torch.Tensor, rope: RopeConfig, positions: int) -> torch.Tensor:
    """With so many rows at least; SGLang leaves a longrope as it is."""
    rows = range(table.shape[0], positions)
    if not rows or rope.long_from is not None:
        return table
    return torch.cat([table, _table(rows, *_frequencies(rope, table.device))])


def _table(rows: range, frequencies: torch.Tensor, scale: float) -> torch.Tensor:
    """What is there beside it while it is made is as large as in SGLang, whose longest have gigabytes."""
    device = frequencies.device
    positions = torch.arange(rows.start, rows.stop, dtype=torch.float32, device=device)
    return _rows(positions, frequencies, scale)


def table_of_batch(rope: RopeConfig, positions: torch.Tensor) -> torch.Tensor:
    """A row a token, where a server keeps none."""
    return _rows(positions.float(), *_frequencies(rope, positions.device))


def kept_frequencies(rope: RopeConfig, device: torch.device) -> torch.Tensor:
    """In place of a table: transformers' layers keep them twice."""
    return _frequencies(rope, device)[0].repeat(2, 1)


def _rows(positions: torch.Tensor, frequencies: torch.Tensor, scale: float) -> torch.Tensor:
    angles = positions[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=-1).mul_(scale)


def rows_of(rope: RopeConfig, positions: torch.Tensor) -> torch.Tensor:
    """Where a table has what turns these."""
    first = rope.long_from
    return positions if first is None else positions + (positions >= first).any() * first


def _short_and_long(
    rope: RopeConfig, device: torch.device
) -> tuple[tuple[int, torch.Tensor, float], tuple[int, torch.Tensor, float]]:
    told, plain = rope.parameters, plain_frequencies(rope, device)
    short, long = (torch.tensor(told[f"{one}_factor"], device=device) for one in ("short", "long"))
    first, rows = told["original_max_position_embeddings"], rope.max_position
    return (first, plain / short, told["short_mscale"]), (rows, plain / long, told["long_mscale"])


def plain_frequencies(rope: RopeConfig, device: torch.device) -> torch.Tensor:
    exponents = torch.arange(0, rope.dim, 2, dtype=torch.float32, device=device) / rope.dim
    return 1.0 / (rope.theta**exponents)


def _frequencies(rope: RopeConfig, device: torch.device) -> tuple[torch.Tensor, float]:
    plain, told = plain_frequencies(rope, device), rope.parameters
    kind = told.get("rope_type", "default")
    if kind == "llama3":
        return _llama3(plain, told), 1.0
    if kind == "yarn":
        return _yarn(plain, told, rope.theta, rope.dim), _yarn_attention_factor(told)
    if kind == "proportional":  # turned by nothing, the other pairs stay
        plain[told["turned_pairs"] :] = 0
    return plain / told["factor"] if kind == "linear" else plain, 1.0


def _llama3(plain: torch.Tensor, rope: Mapping[str, Any]) -> torch.Tensor:
    """Long wavelengths are stretched by the factor, short ones kept, those between blended."""
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] / (2 * math.pi / plain)
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return plain / rope["factor"] * (1 - keep) + plain * keep


def _yarn(plain: torch.Tensor, rope: Mapping[str, Any], theta: float, dim: int) -> torch.Tensor:
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


@opaque_op("sgl_tune::rope_", mutates_args=("q", "k"))
def rope_(
    q: torch.Tensor, k: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, interleaved: bool
) -> None:
    """Turn the first `rotary_dim` values of each head of q [T, heads, D] and k [T, kv heads, D], in place."""
    if q.is_cuda:
        from runtime.layers import kernels

        kernels.rope(q, table, positions, interleaved)
        kernels.rope(k, table, positions, interleaved)
    else:
        _rotate(q, table, positions, interleaved)
        _rotate(k, table, positions, interleaved)


@rope_.register_fake
def _(
    q: torch.Tensor, k: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, interleaved: bool
) -> None:
    return None


def _rotate(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, interleaved: bool) -> None:
    dim = table.shape[1]
    cos, sin = table[positions].to(x.dtype).unsqueeze(1).chunk(2, dim=-1)
    rotary = x[..., :dim]
    first, second = (rotary[..., 0::2], rotary[..., 1::2]) if interleaved else rotary.chunk(2, dim=-1)
    turned = first * cos - second * sin
    second.copy_(second * cos + first * sin)
    first.copy_(turned)

"""A rope whose cosines and sines each KV head mixes by weights of its own, for itself and those that ask it
(FourierRotaryEmbedding of srt/layers/rotary_embedding/rope_variant.py)."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from runtime.layers.opaque import opaque_op
from runtime.layers.rope import plain_frequencies, rope_
from runtime.server.layer_config import RopeConfig


def mixed_table(rope: RopeConfig, cos_coef: torch.Tensor, sin_coef: torch.Tensor) -> torch.Tensor:
    """[max_position, KV heads, 2 x rotary_dim] fp32: cosines and sines, and both again, as SGLang keeps
    either twice. What is there beside it while it is made is as large as there."""
    turns = plain_frequencies(rope, cos_coef.device)[: rope.mixed]
    positions = torch.arange(rope.max_position, dtype=torch.float32, device=turns.device)
    angles = torch.einsum("i,j->ij", positions, turns)
    cos = angles.cos().expand(cos_coef.shape[0], -1, -1)
    sin = angles.sin().expand(cos_coef.shape[0], -1, -1)
    sin, cos = _mixed(sin, sin_coef), _mixed(cos, cos_coef)
    rest = (0, rope.dim // 2 - sin.shape[-1])
    sin = F.pad(sin, rest, value=1.0)
    cos = F.pad(cos, rest, value=1.0)
    both = torch.cat((cos, sin), dim=-1)
    del cos, sin
    return torch.cat((both, both.clone()), dim=-1)


def _mixed(waves: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    return torch.einsum("htD,hDd->thd", waves, by)


def turned(
    q: torch.Tensor, k: torch.Tensor, table: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """q [T, heads, D] and k [T, KV heads, D], each by the row of its own KV head."""
    rows = table.index_select(0, positions).to(q.dtype)
    q, k = (one.clone(memory_format=torch.contiguous_format) for one in (q, k))
    turn_by_heads_(q, k, rows)
    return q, k


@opaque_op("sgl_tune::turn_by_heads_", mutates_args=("q", "k"))
def turn_by_heads_(q: torch.Tensor, k: torch.Tensor, rows: torch.Tensor) -> None:
    tokens, heads, width = k.shape
    table, each = rows.view(-1, width), q.shape[1] // heads
    places = torch.arange(0, 2 * tokens * heads, 2, device=q.device)
    rope_(q.view(-1, each, width), k.view(-1, 1, width), table, places, False)


@turn_by_heads_.register_fake
def _(q: torch.Tensor, k: torch.Tensor, rows: torch.Tensor) -> None:
    return None

"""Attention to groups of tokens in plain torch and fp32, a request at a time: the CPU's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from runtime.layers.attention.reference import QUERY_BLOCK, Paging, marked


@dataclass(frozen=True, slots=True)
class Asking:
    """`rows` of a batch are one request's new tokens, `slots` those of all that it has; it had `before`."""

    rows: slice
    slots: torch.Tensor
    before: int


def _asking(paging: Paging) -> Iterator[Asking]:
    starts = paging.query_starts.tolist()
    told = zip(paging.requests.tolist(), paging.seq_lens.tolist(), pairwise(starts), strict=True)
    for request, length, (start, end) in told:
        yield Asking(slice(start, end), paging.table[request, :length], length - (end - start))


def turn(x: torch.Tensor, angles: torch.Tensor, back: bool = False) -> None:
    """x [T, heads, D] by angles [T, cosines | sines], or back."""
    cos, sin = angles.unsqueeze(1).chunk(2, dim=-1)
    sin = -sin if back else sin
    last = x[..., -angles.shape[-1] :]
    first, second = last[..., 0::2], last[..., 1::2]
    turned = first.float() * cos - second.float() * sin
    second.copy_(second.float() * cos + first.float() * sin)
    first.copy_(turned)


def group_keys(
    buffer: torch.Tensor,
    groups: torch.Tensor,
    bias: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    rope: torch.Tensor,
    paging: Paging,
    rate: int,
    overlaps: bool,
) -> None:
    for one in _asking(paging):
        whole = slice(one.before // rate, len(one.slots) // rate)
        first = max(whole.start - overlaps, 0)
        if whole.stop > whole.start:
            rows = buffer[one.slots[first * rate : whole.stop * rate]].float().unflatten(0, (-1, rate))
            keys, gates = rows.chunk(2, dim=-1)
            mean = _weighed(keys, gates + bias, overlaps)[whole.start - first :]
            mean = mean * torch.rsqrt(mean.square().mean(-1, keepdim=True) + eps) * weight
            numbers = torch.arange(whole.start, whole.stop)
            turn(mean.unsqueeze(1), rope[numbers * rate])
            groups[one.slots[numbers * rate + rate - 1]] = mean.to(groups.dtype)


def _weighed(keys: torch.Tensor, gates: torch.Tensor, overlaps: bool) -> torch.Tensor:
    """[groups, tokens, D] -> [groups, D]; of 2 D values, the first are for the next group, which else has
    nothing before it."""
    if overlaps:
        (later, keys), (later_gates, gates) = keys.chunk(2, dim=-1), gates.chunk(2, dim=-1)
        before = torch.zeros_like(later[:1]), torch.full_like(later_gates[:1], float("-inf"))
        keys = torch.cat([torch.cat([before[0], later[:-1]]), keys], dim=1)
        gates = torch.cat([torch.cat([before[1], later_gates[:-1]]), gates], dim=1)
    return (keys * gates.softmax(dim=1)).sum(dim=1)


def attend(
    q: torch.Tensor,
    buffer: torch.Tensor,
    groups: torch.Tensor | None,
    chosen: torch.Tensor | None,
    sinks: torch.Tensor,
    paging: Paging,
    rate: int,
    window: int,
    scale: float,
) -> torch.Tensor:
    out = q.new_zeros(q.shape)
    for one in _asking(paging):
        for start in range(one.rows.start, one.rows.stop, QUERY_BLOCK):
            rows = slice(start, min(start + QUERY_BLOCK, one.rows.stop))
            first = one.before + start - one.rows.start
            positions = torch.arange(first, first + rows.stop - rows.start)[:, None]
            near = torch.arange(max(first - window + 1, 0), first + len(positions))
            keys, seen = buffer[one.slots[near]].float(), (near <= positions) & (near > positions - window)
            if groups is not None:
                far = torch.arange(len(one.slots) // rate) * rate + rate - 1
                whole = far <= positions
                if chosen is not None:
                    whole &= marked(chosen[rows], len(far))
                keys = torch.cat([keys, groups[one.slots[far]].float()])
                seen = torch.cat([seen, whole], dim=1)
            out[rows] = _attend(q[rows].float(), keys, seen, sinks, scale).to(out.dtype)
    return out


def _attend(
    q: torch.Tensor, keys: torch.Tensor, seen: torch.Tensor, sinks: torch.Tensor, scale: float
) -> torch.Tensor:
    scores = torch.einsum("thd,nd->thn", q, keys).mul_(scale)
    scores.masked_fill_(~seen[:, None], float("-inf"))
    beside = sinks.float()[None, :, None].expand(len(q), -1, 1)
    weights = torch.cat([scores, beside], dim=-1).softmax(-1)[..., :-1]
    return torch.einsum("thn,nd->thd", weights, keys)

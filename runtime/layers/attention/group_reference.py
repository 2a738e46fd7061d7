"""Attention to groups of tokens in plain torch and fp32, a request at a time: the CPU's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from runtime.layers.attention.reference import Paging, marked


@dataclass(frozen=True, slots=True)
class Asking:
    """`rows` of a batch are one request's new tokens; `slots` are of all that it has."""

    number: int
    rows: slice
    slots: torch.Tensor

    @property
    def positions(self) -> torch.Tensor:
        total = len(self.slots)
        return torch.arange(total - (self.rows.stop - self.rows.start), total)


def _asking(paging: Paging) -> Iterator[Asking]:
    starts = paging.query_starts.tolist()
    told = zip(paging.requests.tolist(), paging.seq_lens.tolist(), strict=True)
    for number, (request, length) in enumerate(told):
        yield Asking(number, slice(starts[number], starts[number + 1]), paging.table[request, :length])


def turn(x: torch.Tensor, angles: torch.Tensor, back: bool = False) -> None:
    """x [T, heads, D] by angles [T, cosines | sines], or back."""
    cos, sin = angles.unsqueeze(1).chunk(2, dim=-1)
    sin = -sin if back else sin
    last = x[..., -angles.shape[-1] :]
    first, second = last[..., 0::2], last[..., 1::2]
    turned = first.float() * cos - second.float() * sin
    second.copy_(second.float() * cos + first.float() * sin)
    first.copy_(turned)


def grouped_keys(
    buffer: torch.Tensor,
    bias: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    rope: torch.Tensor,
    paging: Paging,
    rate: int,
    overlaps: bool,
) -> torch.Tensor:
    most = max(paging.seq_lens.tolist(), default=0) // rate
    found = buffer.new_zeros(len(paging.seq_lens), most, len(weight))
    for one in _asking(paging):
        count = len(one.slots) // rate
        if count:
            rows = buffer[one.slots[: count * rate]].float().unflatten(0, (count, rate))
            keys, gates = rows.chunk(2, dim=-1)
            mean = _weighed(keys, gates + bias, overlaps)
            mean = mean * torch.rsqrt(mean.square().mean(-1, keepdim=True) + eps) * weight
            turn(mean.unsqueeze(1), rope[torch.arange(count) * rate])
            found[one.number, :count] = mean.to(found.dtype)
    return found


def _weighed(keys: torch.Tensor, gates: torch.Tensor, overlaps: bool) -> torch.Tensor:
    """[groups, tokens, D] -> [groups, D]; of 2 D values, the first are for the next group, which else has
    nothing before it."""
    if overlaps:
        (later, keys), (later_gates, gates) = keys.chunk(2, dim=-1), gates.chunk(2, dim=-1)
        before = torch.zeros_like(later[:1]), torch.full_like(later_gates[:1], float("-inf"))
        keys = torch.cat([torch.cat([before[0], later[:-1]]), keys], dim=1)
        gates = torch.cat([torch.cat([before[1], later_gates[:-1]]), gates], dim=1)
    return (keys * gates.softmax(dim=1)).sum(dim=1)


def choose_groups(
    q: torch.Tensor,
    keys: torch.Tensor,
    head_weights: torch.Tensor,
    scale: float,
    paging: Paging,
    rate: int,
    count: int,
) -> torch.Tensor:
    chosen = torch.full((q.shape[0], count), -1, dtype=torch.int32)
    for one in _asking(paging):
        groups = len(one.slots) // rate
        each_head = torch.einsum("thd,nd->thn", q[one.rows].float(), keys[one.number, :groups].float())
        scores = torch.einsum("thn,th->tn", each_head.relu_(), head_weights[one.rows].float()) * scale
        scores.masked_fill_(~_whole(one, groups, rate), float("-inf"))
        best = scores.topk(min(count, groups), dim=-1)
        chosen[one.rows, : best.indices.shape[1]] = best.indices.masked_fill(
            best.values == float("-inf"), -1
        ).int()
    return chosen


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
        at, positions = torch.arange(len(one.slots)), one.positions[:, None]
        keys, seen = buffer[one.slots].float(), (at <= positions) & (at > positions - window)
        if groups is not None:
            count = len(one.slots) // rate
            whole = _whole(one, count, rate)
            if chosen is not None:
                whole &= marked(chosen[one.rows], count)
            keys = torch.cat([keys, groups[one.number, :count].float()])
            seen = torch.cat([seen, whole], dim=1)
        out[one.rows] = _attend(q[one.rows].float(), keys, seen, sinks, scale).to(out.dtype)
    return out


def _whole(one: Asking, groups: int, rate: int) -> torch.Tensor:
    """Which groups end at a token's position or before it: [t, groups]."""
    return torch.arange(groups) < (one.positions[:, None] + 1) // rate


def _attend(
    q: torch.Tensor, keys: torch.Tensor, seen: torch.Tensor, sinks: torch.Tensor, scale: float
) -> torch.Tensor:
    scores = torch.einsum("thd,nd->thn", q, keys).mul_(scale)
    scores.masked_fill_(~seen[:, None], float("-inf"))
    beside = sinks.float()[None, :, None].expand(len(q), -1, 1)
    weights = torch.cat([scores, beside], dim=-1).softmax(-1)[..., :-1]
    return torch.einsum("thn,nd->thd", weights, keys)

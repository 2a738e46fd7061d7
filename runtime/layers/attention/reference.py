"""Attention in plain torch and fp32, a request at a time: the CPU's own, and what tests trust."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from runtime.forward.kv_packing import FP8, FP8_MAX, PackedRow

QUERY_BLOCK = 512  # bounds the score matrix of a long prefill


@dataclass(frozen=True, slots=True)
class Paging:
    """Which slots a request's tokens live in, and which rows of a batch are its queries."""

    table: torch.Tensor
    requests: torch.Tensor
    seq_lens: torch.Tensor
    query_starts: torch.Tensor
    max_query_len: int
    slot_map: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `start` to `end` of the batch are queries at `position` and after it of the tokens in `slots`."""

    start: int
    end: int
    position: int
    slots: torch.Tensor

    @property
    def positions(self) -> torch.Tensor:
        return torch.arange(self.position, self.position + self.end - self.start)


def store(
    buffer: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor, plain: int, slot_map: torch.Tensor | None
) -> None:
    if buffer.dtype is torch.uint8:
        rows = PackedRow(rows.shape[-1] - plain, plain).pack(rows)
    elif buffer.dtype is FP8:
        rows = rows.float().clamp(-FP8_MAX, FP8_MAX)
    buffer[slots if slot_map is None else slot_map[slots]] = rows.to(buffer.dtype)


def grouped(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    paging: Paging,
    scale: float,
    window: int,
    sinks: torch.Tensor | None,
    cap: float = 0.0,
    chunk: int = 0,
    chosen: torch.Tensor | None = None,
    block: int = 1,
    growth: int = 0,
    by_distance: torch.Tensor | None = None,
    both_ways: bool = False,
) -> torch.Tensor:
    out = q.new_zeros(*q.shape[:2], values.shape[-1])
    for span in _spans(paging, both_ways):
        at, positions = torch.arange(len(span.slots)), span.positions[:, None]
        seen = (at <= positions) | both_ways
        if window:
            seen &= (at > positions - window) & (at < positions + window)
        if chunk:
            seen &= at // chunk == positions // chunk
        rows, seen = slice(span.start, span.end), seen[:, None]
        if chosen is not None:
            inside = _inside(chosen[rows], block, len(span.slots))
            seen = seen & inside.repeat_interleave(q.shape[1] // keys.shape[1], dim=1)
        grown = score_growth(span.positions, growth) if growth else None
        own = sinks[rows] if sinks is not None and sinks.dim() == 2 else sinks
        given = None if by_distance is None else _behind(by_distance[rows], span.positions, len(span.slots))
        kept = keys[span.slots], values[span.slots]
        out[rows] = _attend(q[rows], *kept, seen, scale, own, cap, grown, given)
    return out


def _behind(by_distance: torch.Tensor, positions: torch.Tensor, length: int) -> torch.Tensor:
    """[t, heads, extent] -> [t, heads, length]: of each key, and nothing where none is given."""
    extent = by_distance.shape[-1]
    distances = positions[:, None] - torch.arange(length)
    near = distances.clamp(0, extent - 1)[:, None].expand(-1, by_distance.shape[1], -1)
    outside = (distances < 0) | (distances >= extent)
    return by_distance.float().gather(-1, near).masked_fill_(outside[:, None], 0)


def score_growth(positions: torch.Tensor, growth: int) -> torch.Tensor:
    grown = positions.clamp(min=1).float().log2() / math.log2(growth)
    return torch.where(positions > growth, grown, 1.0)


def _inside(chosen: torch.Tensor, block: int, length: int) -> torch.Tensor:
    """[t, kv heads, K] blocks -> [t, kv heads, length] of their tokens."""
    whole = marked(chosen.flatten(0, 1), -(-length // block)).unflatten(0, chosen.shape[:2])
    return whole.repeat_interleave(block, dim=-1)[..., :length]


def block_scores(
    q: torch.Tensor,
    keys: torch.Tensor,
    paging: Paging,
    out: torch.Tensor,
    first: int,
    size: int,
    local: int,
) -> None:
    for span in _spans(paging):
        start, end = max(span.start, first), min(span.end, first + len(out))
        if start >= end:
            continue
        positions = span.positions[start - span.start : end - span.start, None, None]
        length = len(span.slots)
        scores = torch.einsum("thd,nd->thn", q[start:end].float(), keys[span.slots].float())
        scores.masked_fill_(torch.arange(length) > positions, float("-inf"))
        blocks = -(-length // size)
        padded = torch.nn.functional.pad(scores, (0, blocks * size - length), value=float("-inf"))
        best, ahead = padded.unflatten(-1, (blocks, size)).amax(-1), positions // size - torch.arange(blocks)
        best.masked_fill_((ahead >= 0) & (ahead < local), float("inf"))
        out[start - first : end - first, :, :blocks] = best


def pool_scores(
    q: torch.Tensor, states: torch.Tensor, places: torch.Tensor, head_weights: torch.Tensor, paging: Paging
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """How much an indexer wants each whole pool of tokens, -inf where one of them is later: rows of a batch,
    their positions, [t, pools]."""
    size, width = places.shape
    for span in _spans(paging):
        rows, pools = slice(span.start, span.end), len(span.slots) // size
        own = states[span.slots[: pools * size]].float().unflatten(0, (pools, size))
        keys, shares = own.split(width, dim=-1)
        pooled = (keys * (shares + places).softmax(1)).sum(1)
        each = torch.einsum("thd,nd->thn", q[rows].float(), pooled).relu_()
        scores = torch.einsum("thn,th->tn", each, head_weights[rows])
        ends = torch.arange(1, pools + 1) * size
        yield rows, span.positions, scores.masked_fill_(ends > span.positions[:, None] + 1, float("-inf"))


def mean_scores(
    q: torch.Tensor,
    keys: torch.Tensor,
    made: Callable[[torch.Tensor], torch.Tensor],
    size: int,
    paging: Paging,
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """How much a token wants each whole group of those before it, by what is `made` of its keys' mean: a row
    of a batch, its position, [groups]."""
    for span in _spans(paging):
        groups = len(span.slots) // size
        own = keys[span.slots[: groups * size]].unflatten(0, (groups, size))
        means = made(own.float().mean(1).to(keys.dtype))
        each = torch.einsum("thd,nd->tnh", q[span.start : span.end].float(), means.float())
        scores = each.relu_().sum(-1) * q.shape[-1] ** -0.5
        for row, position in enumerate(span.positions.tolist()):
            yield span.start + row, position, scores[row, : (position + 1) // size]


def latent(
    q: torch.Tensor,
    latents: torch.Tensor,
    paging: Paging,
    value_dim: int,
    scale: float,
    selected: torch.Tensor | None,
    sinks: torch.Tensor | None = None,
    window: int = 0,
) -> torch.Tensor:
    out = q.new_zeros(*q.shape[:2], value_dim)
    for span in _spans(paging):
        rows = slice(span.start, span.end)
        keys = _unpacked(latents[span.slots], PackedRow(value_dim, q.shape[-1] - value_dim))
        at, positions = torch.arange(len(span.slots)), span.positions[:, None]
        seen = at <= positions
        if window:
            seen &= at > positions - window
        if selected is not None:
            seen &= marked(selected[rows], len(span.slots))
        out[rows] = _attend(q[rows], keys, keys[..., :value_dim], seen[:, None], scale, sinks)
    return out


def index_scores(
    q: torch.Tensor,
    keys: torch.Tensor,
    head_weights: torch.Tensor,
    paging: Paging,
    out: torch.Tensor,
    first: int,
    rate: int,
) -> None:
    for span in _spans(paging):
        start, end = max(span.start, first), min(span.end, first + len(out))
        if start >= end:
            continue
        slots = span.slots[rate - 1 :: rate]
        k = _unpacked(keys[slots], PackedRow(q.shape[-1]))
        each_head = torch.einsum("thd,nd->thn", q[start:end].float(), k).relu_()
        scores = torch.einsum("thn,th->tn", each_head, head_weights[start:end].float())
        positions = span.positions[start - span.start : end - span.start]
        later = torch.arange(1, len(slots) + 1) * rate - 1 > positions[:, None]
        out[start - first : end - first, : len(slots)] = scores.masked_fill_(later, float("-inf"))


def _spans(paging: Paging, whole: bool = False) -> Iterator[Span]:
    """`whole`: with the slots of tokens behind them, too."""
    starts = paging.query_starts.tolist()
    for i, (request, length) in enumerate(
        zip(paging.requests.tolist(), paging.seq_lens.tolist(), strict=True)
    ):
        first = length - (starts[i + 1] - starts[i])
        for start in range(starts[i], starts[i + 1], QUERY_BLOCK):
            end = min(start + QUERY_BLOCK, starts[i + 1])
            position = first + start - starts[i]
            slots = paging.table[request, : length if whole else position + end - start]
            yield Span(start, end, position, slots if paging.slot_map is None else paging.slot_map[slots])


def _unpacked(rows: torch.Tensor, packed: PackedRow) -> torch.Tensor:
    return packed.unpack(rows) if rows.dtype is torch.uint8 else rows.float()


def marked(selected: torch.Tensor, length: int) -> torch.Tensor:
    """[t, K] positions -> [t, length] bool. Unused entries (-1) go to a column that is cut off."""
    columns = torch.where(selected < 0, length, selected).long()
    return torch.zeros(selected.shape[0], length + 1, dtype=torch.bool).scatter_(1, columns, True)[:, :length]


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    seen: torch.Tensor,
    scale: float,
    sinks: torch.Tensor | None,
    cap: float = 0.0,
    grown: torch.Tensor | None = None,
    given: torch.Tensor | None = None,
) -> torch.Tensor:
    """q [t, heads, D]; k [n, kv heads, D], v [n, kv heads, E]; seen [t, 1 or heads, n] -> [t, heads, E]."""
    grouped = q.float().unflatten(1, (k.shape[1], -1))
    scores = torch.einsum("thgd,nhd->thgn", grouped, k.float()).mul_(scale).flatten(1, 2)
    if cap:
        scores.div_(cap).tanh_().mul_(cap)
    if grown is not None:
        scores.mul_(grown[:, None, None])
    if given is not None:
        scores.add_(given)
    scores.masked_fill_(~seen, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.float().expand(len(q), -1)[..., None]], dim=-1)
    weights = scores.softmax(-1)[..., : k.shape[0]].unflatten(1, (k.shape[1], -1))
    return torch.einsum("thgn,nhe->thge", weights, v.float()).flatten(1, 2)

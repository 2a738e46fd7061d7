"""Attention in plain torch and fp32, one request at a time: runs on CPUs, and tests compare with it."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.forward.kv_packing import PackedRow

QUERY_BLOCK = 512  # bounds the score matrix of a long prefill


@dataclass(frozen=True, slots=True)
class Paging:
    """The slots of each request's tokens, and the rows of the batch that are its queries."""

    table: Tensor
    requests: Tensor
    seq_lens: Tensor
    query_starts: Tensor
    max_query_len: int
    slot_map: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AttentionLayer:
    """A layer's attention. Tokens see the last `window`; `sinks` [heads] enter the softmax without values."""

    layer_id: int
    scale: float
    window: int | None = None
    sinks: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `start` to `end` of a batch: one request's queries from `position` on; tokens in `slots`."""

    start: int
    end: int
    position: int
    slots: Tensor

    @property
    def positions(self) -> Tensor:
        return torch.arange(self.position, self.position + self.end - self.start)


def grouped(q: Tensor, keys: Tensor, values: Tensor, paging: Paging, layer: AttentionLayer) -> Tensor:
    out = torch.zeros_like(q)
    for span in _spans(paging):
        at, positions = torch.arange(len(span.slots)), span.positions[:, None]
        seen = at <= positions
        if layer.window:
            seen &= at > positions - layer.window
        rows, kept = slice(span.start, span.end), (keys[span.slots], values[span.slots])
        out[rows] = _attend(q[rows], *kept, seen[:, None], layer.scale, layer.sinks)
    return out


def latent(
    q: Tensor, latents: Tensor, paging: Paging, value_dim: int, scale: float, selected: Tensor | None
) -> Tensor:
    out = q.new_zeros(*q.shape[:2], value_dim)
    for span in _spans(paging):
        rows = slice(span.start, span.end)
        keys = _unpacked(latents[span.slots], PackedRow(value_dim, q.shape[-1] - value_dim))
        seen = torch.arange(len(span.slots)) <= span.positions[:, None]
        if selected is not None:
            seen &= _marked(selected[rows], len(span.slots))
        out[rows] = _attend(q[rows], keys, keys[..., :value_dim], seen[:, None], scale, None)
    return out


def index_scores(
    q: Tensor, keys: Tensor, head_weights: Tensor, paging: Paging, out: Tensor, first: int
) -> None:
    for span in _spans(paging):
        start, end = max(span.start, first), min(span.end, first + len(out))
        if start >= end:
            continue
        k = _unpacked(keys[span.slots], PackedRow(q.shape[-1]))
        each_head = torch.einsum("thd,nd->thn", q[start:end].float(), k).relu_()
        scores = torch.einsum("thn,th->tn", each_head, head_weights[start:end].float())
        positions = span.positions[start - span.start : end - span.start]
        later = torch.arange(len(span.slots)) > positions[:, None]
        out[start - first : end - first, : len(span.slots)] = scores.masked_fill_(later, float("-inf"))


def _spans(paging: Paging) -> Iterator[Span]:
    starts = paging.query_starts.tolist()
    for i, (request, length) in enumerate(
        zip(paging.requests.tolist(), paging.seq_lens.tolist(), strict=True)
    ):
        first = length - (starts[i + 1] - starts[i])
        for start in range(starts[i], starts[i + 1], QUERY_BLOCK):
            end = min(start + QUERY_BLOCK, starts[i + 1])
            position = first + start - starts[i]
            slots = paging.table[request, : position + end - start]
            yield Span(start, end, position, slots if paging.slot_map is None else paging.slot_map[slots])


def _unpacked(rows: Tensor, packed: PackedRow) -> Tensor:
    return packed.unpack(rows) if rows.dtype is torch.uint8 else rows.float()


def _marked(selected: Tensor, length: int) -> Tensor:
    """Turn positions [t, K] into a mask [t, length]. Unused entries (-1) go to a column that is cut off."""
    columns = torch.where(selected < 0, length, selected).long()
    return torch.zeros(selected.shape[0], length + 1, dtype=torch.bool).scatter_(1, columns, True)[:, :length]


def _attend(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float, sinks: Tensor | None) -> Tensor:
    """q [t, heads, D]; k [n, kv heads, D], v [n, kv heads, E]; seen [t, 1, n] -> [t, heads, E]."""
    by_kv_head = q.float().unflatten(1, (k.shape[1], -1))
    scores = torch.einsum("thgd,nhd->thgn", by_kv_head, k.float()).mul_(scale).flatten(1, 2)
    scores.masked_fill_(~seen, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.float().expand(len(q), -1)[..., None]], dim=-1)
    weights = scores.softmax(-1)[..., : k.shape[0]].unflatten(1, (k.shape[1], -1))
    return torch.einsum("thgn,nhe->thge", weights, v.float()).flatten(1, 2)

"""Recurrent layers in plain torch and fp32, one request at a time and in chunks; this is what CPUs run.

Within a chunk, each token's contribution to every later output is one matrix product. What a delta rule
writes depends on what it wrote before, which gives a triangular system.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from runtime.forward.batch import ForwardBatch, ForwardMode

CHUNK = 64
_SQUARES_EPS = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Which rows belong to which request. A slot is the request's row in the request table; 0 is padding.

    A verify does not change the states, because it is not yet known which of its tokens will be accepted.
    """

    slots: Tensor
    seq_lens: Tensor
    query_starts: Tensor
    longest: int
    keeps: bool

    @classmethod
    def of(cls, batch: ForwardBatch) -> Rows:
        keeps = batch.mode is not ForwardMode.TARGET_VERIFY
        return cls(batch.req_pool_indices, batch.seq_lens, batch.query_starts, batch.max_query_len, keeps)

    def __iter__(self) -> Iterator[tuple[int, slice, bool]]:
        """Yield each request's slot, its rows, and whether its state holds earlier tokens."""
        starts = self.query_starts.tolist()
        for i, (slot, length) in enumerate(zip(self.slots.tolist(), self.seq_lens.tolist(), strict=True)):
            rows = slice(starts[i], starts[i + 1])
            if rows.start < rows.stop:
                yield slot, rows, length > rows.stop - rows.start


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, out: Tensor, requests: Rows
) -> None:
    earlier = weight.shape[1] - 1
    for slot, rows, goes_on in requests:
        before = state[slot].float() if goes_on else x.new_zeros(x.shape[1], earlier, dtype=torch.float32)
        seen = torch.cat((before, x[rows].float().T), dim=1)
        answer = F.conv1d(
            seen[None], weight.float()[:, None], None if bias is None else bias.float(), groups=len(seen)
        )
        out[rows] = F.silu(answer[0].T).to(out.dtype)
        if requests.keeps:
            state[slot] = seen[:, seen.shape[1] - earlier :].to(state.dtype)


@dataclass(frozen=True, slots=True)
class Gates:
    """Gates, fp32: `decay` [T, heads, 1], the kept share's logarithm; `written` [T, heads], the new share."""

    decay: Tensor
    written: Tensor
    is_delta: bool

    @classmethod
    def of(
        cls, step: Tensor, strength: Tensor | None, rate: Tensor, bias: Tensor, least_step: float
    ) -> Gates:
        taken = F.softplus(step.float() + bias.float()).clamp(min=least_step)
        decay = -(rate.float().exp() * taken)[..., None]
        return cls(decay, taken if strength is None else strength.float().sigmoid(), strength is not None)


def recur(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Gates,
    skip: Tensor | None,
    state: Tensor,
    out: Tensor,
    requests: Rows,
) -> None:
    shared_by = v.shape[1] // k.shape[1]
    for slot, rows, goes_on in requests:
        queries, keys = (x[rows].float().repeat_interleave(shared_by, 1) for x in (q, k))
        if gates.is_delta:
            queries, keys = _normalized(queries) * queries.shape[-1] ** -0.5, _normalized(keys)
        values, held = v[rows].float(), state[slot].float()
        held = held if goes_on else torch.zeros_like(held)
        for first in range(0, len(values), CHUNK):
            part = slice(first, first + CHUNK)
            own = slice(rows.start + first, min(rows.start + first + CHUNK, rows.stop))
            answer, held = _chunk(queries[part], keys[part], values[part], gates, own, held)
            out[own] = answer.to(out.dtype)
        if skip is not None:
            out[rows] += (skip.float()[:, None] * values).to(out.dtype)
        if requests.keeps:
            state[slot] = held.to(state.dtype)


def _chunk(q: Tensor, k: Tensor, v: Tensor, gates: Gates, rows: slice, held: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs [L, heads, V] and the next state from q, k [L, heads, K], v [L, heads, V], `held`."""
    total = gates.decay[rows].cumsum(0)
    later = torch.ones(len(q), len(q), dtype=torch.bool).triu(1)
    between = (total[:, None] - total[None]).squeeze(-1).masked_fill(later[..., None], float("-inf")).exp()
    written = gates.written[rows]
    writes = v * written[..., None]
    if gates.is_delta:
        answered = torch.einsum("hvk,lhk->lhv", held, k * total.exp())
        writes = (v - answered) * written[..., None]
        among = torch.einsum("lmh,lh->hlm", torch.einsum("lhk,mhk->lmh", k, k) * between, written)
        solved = torch.linalg.solve_triangular(
            among.tril(-1), writes.transpose(0, 1), upper=False, unitriangular=True
        )
        writes = solved.transpose(0, 1)
    answer = torch.einsum("hvk,lhk->lhv", held, q * total.exp())
    answer += torch.einsum("lmh,mhv->lhv", torch.einsum("lhk,mhk->lmh", q, k) * between, writes)
    left = (total[-1] - total).exp()
    state = held * total[-1].exp()[:, None] + torch.einsum("lhv,lhk->hvk", writes, k * left)
    return answer, state


def gated_norm(x: Tensor, gate: Tensor, weight: Tensor, group: int, eps: float, gate_first: bool) -> Tensor:
    wide, opening = x.float(), F.silu(gate.float())
    if gate_first:
        wide = wide * opening
    parts = wide.unflatten(-1, (-1, group))
    parts = parts * torch.rsqrt(parts.square().mean(-1, keepdim=True) + eps)
    normalized = parts.to(x.dtype) * weight.view(-1, group)
    answer = normalized.flatten(-2)
    return answer if gate_first else (answer * opening).to(x.dtype)


def _normalized(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + _SQUARES_EPS)

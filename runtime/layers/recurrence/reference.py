"""Recurrent layers in plain torch and fp32, a request at a time and in chunks: the CPU's own.

Within a chunk every token's part in every later answer is one matrix product. What a delta rule writes
depends on what it wrote before: a triangular system.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

CHUNK = 64
_PRODUCTS = 1 << 22  # of a chunk's rows with each other, where each channel of a key has its own
_SQUARES_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Requests:
    slots: torch.Tensor
    seq_lens: torch.Tensor
    query_starts: torch.Tensor

    def __iter__(self) -> Iterator[tuple[int, slice, bool]]:
        """Each one's slot, its rows, and whether its state holds earlier tokens."""
        starts = self.query_starts.tolist()
        for i, (slot, length) in enumerate(zip(self.slots.tolist(), self.seq_lens.tolist(), strict=True)):
            rows = slice(starts[i], starts[i + 1])
            if rows.start < rows.stop:
                yield slot, rows, length > rows.stop - rows.start


def convolve(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    state: torch.Tensor,
    out: torch.Tensor,
    requests: Requests,
    keeps: bool,
    opens: bool,
) -> None:
    earlier = weight.shape[1] - 1
    for slot, rows, goes_on in requests:
        before = state[slot].float() if goes_on else x.new_zeros(x.shape[1], earlier, dtype=torch.float32)
        seen = torch.cat((before, x[rows].float().T), dim=1)
        answer = F.conv1d(
            seen[None], weight.float()[:, None], None if bias is None else bias.float(), groups=len(seen)
        )
        out[rows] = (F.silu(answer[0].T) if opens else answer[0].T).to(out.dtype)
        if keeps:
            state[slot] = seen[:, seen.shape[1] - earlier :].to(state.dtype)


@dataclass(frozen=True, slots=True)
class Gates:
    """fp32: the logarithm of what is kept, [T, heads, K] or of all channels of a key [T, heads, 1], and how
    much is written, [T, heads]."""

    decay: torch.Tensor
    written: torch.Tensor
    is_delta: bool


def gates(
    step: torch.Tensor,
    strength: torch.Tensor | None,
    rate: torch.Tensor,
    bias: torch.Tensor,
    least_step: float,
    lower_bound: float | None = None,
) -> Gates:
    raw, pace = step.float() + bias.float().view(step.shape[1:]), rate.float().exp()
    pace = pace[:, None] if pace.dim() == 1 else pace
    taken = F.softplus(raw).clamp(min=least_step)
    decay = -pace * (taken[..., None] if taken.dim() == 2 else taken)
    if lower_bound is not None:
        decay = lower_bound * (pace * raw).sigmoid()
    return Gates(decay, taken if strength is None else strength.float().sigmoid(), strength is not None)


def recur(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gates: Gates,
    skip: torch.Tensor | None,
    state: torch.Tensor,
    out: torch.Tensor,
    requests: Requests,
    keeps: bool,
    gate: torch.Tensor | None = None,
) -> None:
    shared_by, chunk = v.shape[1] // k.shape[1], _rows_of(gates.decay)
    for slot, rows, goes_on in requests:
        queries, keys = (x[rows].float().repeat_interleave(shared_by, 1) for x in (q, k))
        if gates.is_delta:
            queries, keys = _normalized(queries) * queries.shape[-1] ** -0.5, _normalized(keys)
        values, held = v[rows].float(), state[slot].float() if goes_on else torch.zeros_like(state[slot])
        held = held.float()
        for first in range(0, len(values), chunk):
            part = slice(first, first + chunk)
            own = slice(rows.start + first, min(rows.start + first + chunk, rows.stop))
            answer, held = _chunk(queries[part], keys[part], values[part], gates, own, held)
            out[own] = answer.to(out.dtype)
        if skip is not None:
            out[rows] += (skip.float()[:, None] * values).to(out.dtype)
        if gate is not None:
            out[rows] *= F.silu(gate[rows].float()).to(out.dtype)
        if keeps:
            state[slot] = held.to(state.dtype)


def _rows_of(decay: torch.Tensor) -> int:
    """Of one chunk: as many heads of one value as Mamba has would make large ones of long chunks."""
    _, heads, keys = decay.shape
    return max(1, min(CHUNK, math.isqrt(_PRODUCTS // (heads * keys))))


def _chunk(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gates: Gates, rows: slice, held: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """q, k [L, heads, K], v [L, heads, V], held [heads, V, K] -> answers [L, heads, V], the next state."""
    total = gates.decay[rows].cumsum(0)
    later = torch.ones(len(q), len(q), dtype=torch.bool).triu(1)
    between = (total[:, None] - total[None]).masked_fill(later[..., None, None], float("-inf")).exp()
    written = gates.written[rows]
    writes = v * written[..., None]
    if gates.is_delta:
        answered = torch.einsum("hvk,lhk->lhv", held, k * total.exp())
        writes = (v - answered) * written[..., None]
        among = torch.einsum("lmh,lh->hlm", _products(k, k, between), written)
        solved = torch.linalg.solve_triangular(
            among.tril(-1), writes.transpose(0, 1), upper=False, unitriangular=True
        )
        writes = solved.transpose(0, 1)
    answer = torch.einsum("hvk,lhk->lhv", held, q * total.exp())
    answer += torch.einsum("lmh,mhv->lhv", _products(q, k, between), writes)
    left = (total[-1] - total).exp()
    state = held * total[-1].exp()[:, None] + torch.einsum("lhv,lhk->hvk", writes, k * left)
    return answer, state


def _products(q: torch.Tensor, k: torch.Tensor, between: torch.Tensor) -> torch.Tensor:
    """[L, L, heads], each less what is forgotten between the two."""
    if between.shape[-1] == 1:
        return torch.einsum("lhk,mhk->lmh", q, k) * between[..., 0]
    return torch.einsum("lhk,mhk,lmhk->lmh", q, k, between)


def gated_norm(
    x: torch.Tensor,
    gate: torch.Tensor,
    weight: torch.Tensor,
    group: int,
    eps: float,
    gate_first: bool,
    plain_gate: bool,
) -> torch.Tensor:
    wide, opening = x.float(), gate.float().sigmoid() if plain_gate else F.silu(gate.float())
    if gate_first:
        wide = wide * opening
    parts = wide.unflatten(-1, (-1, group))
    parts = parts * torch.rsqrt(parts.square().mean(-1, keepdim=True) + eps)
    normalized = parts.to(x.dtype) * weight.view(-1, group)
    answer = normalized.flatten(-2)
    return answer if gate_first else (answer * opening).to(x.dtype)


def _normalized(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + _SQUARES_EPS)

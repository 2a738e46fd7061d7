"""What a layer calls: its rows go on from the states of their requests, and leave them new ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from runtime.forward.batch import ForwardBatch, ForwardMode
from runtime.layers.recurrence import ops


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Whose rows they are: a request's slot is its row in the request table, and 0 is nobody's.

    A verify leaves the states as they are: which of its tokens are taken is not known yet.
    """

    slots: torch.Tensor
    seq_lens: torch.Tensor
    query_starts: torch.Tensor
    longest: int
    keeps: bool

    @classmethod
    def of(cls, batch: ForwardBatch) -> Rows:
        keeps = batch.mode is not ForwardMode.TARGET_VERIFY
        return cls(batch.req_pool_indices, batch.seq_lens, batch.query_starts, batch.max_query_len, keeps)


def recur(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    step: torch.Tensor,
    strength: torch.Tensor | None,
    rate: torch.Tensor,
    bias: torch.Tensor,
    skip: torch.Tensor | None,
    least_step: float,
    state: torch.Tensor,
    rows: Rows,
) -> torch.Tensor:
    """q and k [T, key heads, K], v [T, heads, V], `step` [T, heads] before its softplus -> [T, heads, V].
    `state` is [slots, heads, V, K].

    `strength` [T, heads] before its sigmoid makes it a delta rule; without it, a value counts as much as its
    step says. `rate`, `bias` and `skip` are of each head: the logarithm of a decay, what a step starts from,
    and how much of a value goes past the state.
    """
    whose = rows.slots, rows.seq_lens, rows.query_starts, rows.keeps
    return ops.recurrence(q, k, v, step, strength, rate, bias, skip, state, *whose, least_step)

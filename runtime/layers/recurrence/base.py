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


@dataclass(frozen=True, slots=True, eq=False)
class RecurrentInputs:
    """q and k [T, key heads, K], v [T, heads, V], `step` [T, heads] before its softplus; or [T, heads, K],
    with a `bias` [heads x K], where each channel of a key forgets by a step of its own: as a softplus says,
    or, with a `lower_bound`, as a sigmoid's share of that.

    `strength` [T, heads] before its sigmoid makes it a delta rule; without it, a value counts as much as its
    step says. `rate`, `bias` and `skip` are of each head: the logarithm of a decay, what a step starts from,
    and how much of a value goes past the state. A `rate` [heads, K] has one for each channel of a key. A
    `gate`, as v is, opens what is answered by its silu.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    step: torch.Tensor
    strength: torch.Tensor | None
    rate: torch.Tensor
    bias: torch.Tensor
    skip: torch.Tensor | None = None
    least_step: float = 0.0
    lower_bound: float | None = None
    gate: torch.Tensor | None = None


def convolve(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    state: torch.Tensor,
    rows: Rows,
    opens: bool = True,
) -> torch.Tensor:
    """A causal convolution of each channel, `opens`: its silu. x [T, channels], weight [channels, width]."""
    return ops.causal_conv(
        x, weight, bias, state, rows.slots, rows.seq_lens, rows.query_starts, rows.longest, rows.keeps, opens
    )


def recur(inputs: RecurrentInputs, state: torch.Tensor, rows: Rows) -> torch.Tensor:
    """[T, heads, V]. `state` is [slots, heads, V, K]."""
    return ops.recurrence(
        inputs.q,
        inputs.k,
        inputs.v,
        inputs.step,
        inputs.strength,
        inputs.rate,
        inputs.bias,
        inputs.skip,
        state,
        rows.slots,
        rows.seq_lens,
        rows.query_starts,
        rows.longest,
        rows.keeps,
        inputs.least_step,
        inputs.lower_bound,
        inputs.gate,
    )

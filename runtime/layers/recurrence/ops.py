"""The opaque ops of recurrent layers: each allocates its output and nothing else, alike on every device."""

from __future__ import annotations

import torch

from runtime.layers.opaque import opaque_op
from runtime.layers.recurrence import reference


@opaque_op("sgl_tune::causal_conv", mutates_args=("state",))
def causal_conv(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    state: torch.Tensor,
    slots: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    longest: int,
    keeps: bool,
    opens: bool,
) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.is_cuda:
        from runtime.layers.recurrence import kernels

        kernels.convolve(x, weight, bias, state, out, slots, seq_lens, query_starts, longest, keeps, opens)
    else:
        requests = reference.Requests(slots, seq_lens, query_starts)
        reference.convolve(x, weight, bias, state, out, requests, keeps, opens)
    return out


@causal_conv.register_fake
def _(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@opaque_op("sgl_tune::recurrence", mutates_args=("state",))
def recurrence(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    step: torch.Tensor,
    strength: torch.Tensor | None,
    rate: torch.Tensor,
    bias: torch.Tensor,
    skip: torch.Tensor | None,
    state: torch.Tensor,
    slots: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    longest: int,
    keeps: bool,
    least_step: float,
    lower_bound: float | None,
    gate: torch.Tensor | None = None,
) -> torch.Tensor:
    out = torch.zeros(v.shape, dtype=v.dtype, device=v.device)  # rows of padding belong to nobody
    if v.is_cuda:
        from runtime.layers.recurrence import kernels

        kernels.recur(
            q, k, v, step, strength, rate, bias, skip, state, out, slots, seq_lens, query_starts, keeps,
            least_step, lower_bound, gate,
        )  # fmt: skip
    else:
        requests = reference.Requests(slots, seq_lens, query_starts)
        gates = reference.gates(step, strength, rate, bias, least_step, lower_bound)
        reference.recur(q, k, v, gates, skip, state, out, requests, keeps, gate)
    return out


@recurrence.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty(v.shape, dtype=v.dtype, device=v.device)


@opaque_op("sgl_tune::gated_norm", mutates_args=())
def gated_norm(
    x: torch.Tensor,
    gate: torch.Tensor,
    weight: torch.Tensor,
    group: int,
    eps: float,
    gate_first: bool,
    plain_gate: bool,
) -> torch.Tensor:
    """Of each `group` values of a row, by their own mean square; the weight is a group's or the row's."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.is_cuda:
        from runtime.layers.recurrence import kernels

        kernels.gated_norm(x, gate, weight, out, group, eps, gate_first, plain_gate)
        return out
    return out.copy_(reference.gated_norm(x, gate, weight, group, eps, gate_first, plain_gate))


@gated_norm.register_fake
def _(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)

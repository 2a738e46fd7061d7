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
) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not x.is_cuda:
        requests = reference.Requests(slots, seq_lens, query_starts)
        reference.convolve(x, weight, bias, state, out, requests, keeps)
    elif x.numel():
        from runtime.layers.recurrence import kernels

        (dim, width), count = weight.shape, slots.shape[0]
        block = min(128, _power_of_2(dim))
        whose = slots, seq_lens, query_starts, x.stride(0), state.stride(0), dim
        kernels.convolve[(count, -(-longest // kernels.TOKENS), -(-dim // block))](
            x, weight, weight if bias is None else bias, state, out, *whose,
            WIDTH=width, HAS_BIAS=bias is not None, TOKENS=kernels.TOKENS, BLOCK=block, num_warps=1,
        )  # fmt: skip
        if keeps:
            kernels.keep_inputs[(count, -(-dim // block))](
                x, state, *whose, KEPT=width - 1, BLOCK=block, num_warps=1
            )
    return out


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
    keeps: bool,
    least_step: float,
) -> torch.Tensor:
    out = torch.zeros(v.shape, dtype=v.dtype, device=v.device)  # rows of padding belong to nobody
    if not v.is_cuda:
        requests = reference.Requests(slots, seq_lens, query_starts)
        gates = reference.Gates.of(step, strength, rate, bias, least_step)
        reference.recur(q, k, v, gates, skip, state, out, requests, keeps)
    elif v.numel():
        from runtime.layers.recurrence import kernels

        (heads, values, keys), opening = state.shape[1:], step if strength is None else strength
        assert all(one[0].is_contiguous() for one in (q, k, v, step, opening)), "only rows may lie apart"
        block = min(kernels.VALUES, _power_of_2(values))
        kernels.recur[(slots.shape[0], heads, -(-values // block))](
            q, k, v, step, opening, rate, bias, rate if skip is None else skip, state, out, slots, seq_lens,
            query_starts, q.stride(0), k.stride(0), v.stride(0), step.stride(0), opening.stride(0),
            heads // k.shape[1], least_step, keys**-0.5, heads, keys, values, DELTA=strength is not None,
            SKIP=skip is not None, KEEPS=keeps, BLOCK_K=_power_of_2(keys), BLOCK_V=block, num_warps=1,
        )  # fmt: skip
    return out


recurrence.register_fake(lambda q, k, v, *_: torch.empty(v.shape, dtype=v.dtype, device=v.device))


@opaque_op("sgl_tune::gated_norm", mutates_args=())
def gated_norm(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, group: int, eps: float, gate_first: bool
) -> torch.Tensor:
    """Normalizes each `group` values of a row by their mean square; one weight per group, or per row."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not x.is_cuda:
        return out.copy_(reference.gated_norm(x, gate, weight, group, eps, gate_first))
    if x.numel():
        from runtime.layers.recurrence import kernels

        kernels.gated_norm[(x.shape[0], x.shape[1] // group)](
            x, gate, weight, out, x.stride(0), gate.stride(0), group, 0 if weight.numel() == group else group,
            eps, GATE_FIRST=gate_first, BLOCK=_power_of_2(group), num_warps=1 if group <= 256 else 4,
        )  # fmt: skip
    return out


def _power_of_2(value: int) -> int:
    return 1 << (value - 1).bit_length()


for _op in (causal_conv, gated_norm):
    _op.register_fake(lambda x, *_: torch.empty(x.shape, dtype=x.dtype, device=x.device))

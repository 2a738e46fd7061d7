"""What a layer calls: it starts from the states of the rows' requests, and writes their new states."""

from typing import Any

import torch
from torch import Tensor, nn

from runtime.layers.recurrence import reference
from runtime.layers.recurrence.reference import Rows
from runtime.simulate.kernel import kernel


def _like(x: Tensor, *_: Any) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@kernel(_like)
def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, rows: Rows) -> Tensor:
    out = _like(x)
    if not x.is_cuda:
        reference.convolve(x, weight, bias, state, out, rows)
    elif x.numel():
        from runtime.layers.recurrence import kernels

        (dim, width), count = weight.shape, rows.slots.shape[0]
        block = min(128, _power_of_2(dim))
        whose = rows.slots, rows.seq_lens, rows.query_starts, x.stride(0), state.stride(0), dim
        kernels.convolve[(count, -(-rows.longest // kernels.TOKENS), -(-dim // block))](
            x, weight, weight if bias is None else bias, state, out, *whose,
            WIDTH=width, HAS_BIAS=bias is not None, TOKENS=kernels.TOKENS, BLOCK=block, num_warps=1,
        )  # fmt: skip
        if rows.keeps:
            kernels.keep_inputs[(count, -(-dim // block))](
                x, state, *whose, KEPT=width - 1, BLOCK=block, num_warps=1
            )
    return out


@kernel(lambda q, k, v, *_: _like(v))
def recur(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    step: Tensor,
    strength: Tensor | None,
    rate: Tensor,
    bias: Tensor,
    skip: Tensor | None,
    least_step: float,
    state: Tensor,
    rows: Rows,
) -> Tensor:
    """Run the recurrence with q and k [T, key heads, K], v [T, heads, V] and `step` [T, heads] (before its
    softplus); return [T, heads, V]. `state` is [slots, heads, V, K].

    `strength` [T, heads] (before its sigmoid) makes it a delta rule. Without it a value is weighted by its
    step. `rate`, `bias` and `skip` are per head: the logarithm of a decay, an offset of the step, and the
    share of a value that bypasses the state.
    """
    out = torch.zeros(v.shape, dtype=v.dtype, device=v.device)  # rows of padding belong to nobody
    if not v.is_cuda:
        gates = reference.Gates.of(step, strength, rate, bias, least_step)
        reference.recur(q, k, v, gates, skip, state, out, rows)
    elif v.numel():
        from runtime.layers.recurrence import kernels

        (heads, values, keys), opening = state.shape[1:], step if strength is None else strength
        assert all(one[0].is_contiguous() for one in (q, k, v, step, opening)), "only rows may lie apart"
        block = min(kernels.VALUES, _power_of_2(values))
        kernels.recur[(rows.slots.shape[0], heads, -(-values // block))](
            q, k, v, step, opening, rate, bias, rate if skip is None else skip, state, out, rows.slots,
            rows.seq_lens, rows.query_starts, q.stride(0), k.stride(0), v.stride(0), step.stride(0),
            opening.stride(0), heads // k.shape[1], least_step, keys**-0.5, heads, keys, values,
            DELTA=strength is not None, SKIP=skip is not None, KEEPS=rows.keeps, BLOCK_K=_power_of_2(keys),
            BLOCK_V=block, num_warps=1,
        )  # fmt: skip
    return out


@kernel(_like)
def gated_norm(x: Tensor, gate: Tensor, weight: Tensor, group: int, eps: float, gate_first: bool) -> Tensor:
    """Normalize each `group` values of a row by their mean square, with one weight per group or per row."""
    out = _like(x)
    if not x.is_cuda:
        return out.copy_(reference.gated_norm(x, gate, weight, group, eps, gate_first))
    if x.numel():
        from runtime.layers.recurrence import kernels

        kernels.gated_norm[(x.shape[0], x.shape[1] // group)](
            x, gate, weight, out, x.stride(0), gate.stride(0), group, 0 if weight.numel() == group else group,
            eps, GATE_FIRST=gate_first, BLOCK=_power_of_2(group), num_warps=1 if group <= 256 else 4,
        )  # fmt: skip
    return out


class GatedNorm(nn.Module):
    """Norms each `group` values by their mean square. `rows` are this rank's part of a split weight. The
    gate's silu is applied before or after the norm."""

    def __init__(
        self,
        name: str,
        size: int,
        group: int,
        eps: float,
        dtype: torch.dtype,
        device: torch.device,
        *,
        gate_first: bool,
        rows: slice | None = None,
    ) -> None:
        super().__init__()
        self.name, self.group, self.eps, self.gate_first = name, group, eps, gate_first
        self.rows = rows
        self.weight = nn.Parameter(torch.empty(size, dtype=dtype, device=device), requires_grad=False)

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return gated_norm(x, gate, self.weight, self.group, self.eps, self.gate_first)


def _power_of_2(value: int) -> int:
    return 1 << (value - 1).bit_length()

"""Triton kernels of recurrent layers: every length and slot is read on the device, so all can be captured."""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import torch
import triton
import triton.language as tl

_TOKENS = 32  # that one program convolves
_VALUES = 16  # of a state that one program holds


@triton.jit
def _convolve(
    x, weight, bias, state, out, slots, seq_lens, starts, x_row, state_slot, DIM,
    WIDTH: tl.constexpr, HAS_BIAS: tl.constexpr, OPENS: tl.constexpr, TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One program a (request, tokens, channels). What lies before its rows is in the state."""
    request = tl.program_id(0)
    first = tl.load(starts + request).to(tl.int64)
    count = tl.load(starts + request + 1).to(tl.int64) - first
    goes_on = tl.load(seq_lens + request) > count
    older = state + tl.load(slots + request).to(tl.int64) * state_slot
    column = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = column < DIM
    at = tl.program_id(1) * TOKENS
    while at < tl.minimum(count, (tl.program_id(1) + 1) * TOKENS):
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        if HAS_BIAS:
            total += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
        for tap in tl.static_range(WIDTH):
            back = at - (WIDTH - 1) + tap
            new = tl.load(x + (first + back) * x_row + column, mask=inside & (back >= 0), other=0.0)
            place = older + column * (WIDTH - 1) + back + WIDTH - 1
            old = tl.load(place, mask=inside & (back < 0) & goes_on, other=0.0)
            factor = tl.load(weight + column * WIDTH + tap, mask=inside, other=0.0)
            total += (new.to(tl.float32) + old.to(tl.float32)) * factor.to(tl.float32)
        answer = total / (1.0 + tl.exp(-total)) if OPENS else total
        tl.store(out + (first + at) * DIM + column, answer.to(out.dtype.element_ty), mask=inside)
        at += 1


@triton.jit
def _keep_inputs(
    x, state, slots, seq_lens, starts, x_row, state_slot, DIM, KEPT: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One program a (request, channels): the last KEPT inputs, which may reach back into the old ones."""
    request = tl.program_id(0)
    first = tl.load(starts + request).to(tl.int64)
    count = tl.load(starts + request + 1).to(tl.int64) - first
    goes_on = tl.load(seq_lens + request) > count
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    place = state + tl.load(slots + request).to(tl.int64) * state_slot + column * KEPT
    inside = (column < DIM) & (count > 0)
    for i in tl.static_range(KEPT):
        back = count - KEPT + i
        new = tl.load(x + (first + back) * x_row + column, mask=inside & (back >= 0), other=0.0)
        old = tl.load(place + count + i, mask=inside & (back < 0) & goes_on, other=0.0)
        tl.store(place + i, (new.to(tl.float32) + old.to(tl.float32)).to(state.dtype.element_ty), mask=inside)


@triton.jit
def _recur(
    q, k, v, step, strength, rate, bias, skip, gate, state, out, slots, seq_lens, starts,
    q_row, k_row, v_row, step_row, strength_row, gate_row, shared_by, least_step, lower_bound, scale,
    HEADS, K, V, DELTA: tl.constexpr, SKIP: tl.constexpr, KEEPS: tl.constexpr, PER_KEY: tl.constexpr,
    RATES: tl.constexpr, BOUNDED: tl.constexpr, GATED: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
):  # fmt: skip
    """One program a (request, head, values), token after token."""
    request, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(starts + request).to(tl.int64)
    count = tl.load(starts + request + 1).to(tl.int64) - first
    goes_on = tl.load(seq_lens + request) > count
    key, value = tl.arange(0, BLOCK_K), tl.program_id(2) * BLOCK_V + tl.arange(0, BLOCK_V)
    keys, values = key < K, value < V
    slot = tl.load(slots + request).to(tl.int64)
    place = state + (slot * HEADS + head) * V * K + value[:, None] * K + key[None, :]
    both = values[:, None] & keys[None, :]
    held = tl.load(place, mask=both & goes_on, other=0.0).to(tl.float32)
    if RATES:
        decay = -tl.exp(tl.load(rate + head * K + key, mask=keys, other=0.0).to(tl.float32))[None, :]
    else:
        decay = -tl.exp(tl.load(rate + head).to(tl.float32))
    if PER_KEY:
        start = tl.load(bias + head * K + key, mask=keys, other=0.0).to(tl.float32)[None, :]
    else:
        start = tl.load(bias + head).to(tl.float32)
    past = tl.load(skip + head).to(tl.float32) if SKIP else 0.0
    of_key = head // shared_by * K + key
    at = first
    while at < first + count:
        query = tl.load(q + at * q_row + of_key, mask=keys, other=0.0).to(tl.float32)
        known = tl.load(k + at * k_row + of_key, mask=keys, other=0.0).to(tl.float32)
        own = tl.load(v + at * v_row + head * V + value, mask=values, other=0.0).to(tl.float32)
        if PER_KEY:
            raw = tl.load(step + at * step_row + head * K + key, mask=keys, other=0.0).to(tl.float32)[None, :]
        else:
            raw = tl.load(step + at * step_row + head).to(tl.float32)
        raw += start
        taken = tl.where(raw > 20.0, raw, tl.log(1.0 + tl.exp(tl.minimum(raw, 20.0))))
        taken = tl.maximum(taken, least_step)
        held *= tl.exp(lower_bound / (1.0 + tl.exp(decay * raw)) if BOUNDED else decay * taken)
        if DELTA:
            query *= scale / tl.sqrt(tl.sum(query * query, 0) + 1e-6)
            known /= tl.sqrt(tl.sum(known * known, 0) + 1e-6)
            opening = tl.load(strength + at * strength_row + head).to(tl.float32)
            write = (own - tl.sum(held * known[None, :], 1)) / (1.0 + tl.exp(-opening))
        else:
            write = own * taken
        held += write[:, None] * known[None, :]
        answer = tl.sum(held * query[None, :], 1) + past * own
        if GATED:
            opened = tl.load(gate + at * gate_row + head * V + value, mask=values, other=0.0).to(tl.float32)
            answer *= opened / (1.0 + tl.exp(-opened))
        tl.store(out + (at * HEADS + head) * V + value, answer.to(out.dtype.element_ty), mask=values)
        at += 1
    if KEEPS:
        tl.store(place, held.to(state.dtype.element_ty), mask=both & (count > 0))


@triton.jit
def _gated_norm(
    x, gate, weight, out, x_row, gate_row, GROUP, weight_step, eps,
    GATE_FIRST: tl.constexpr, PLAIN_GATE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program a (row, group)."""
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    within = tl.arange(0, BLOCK)
    inside = within < GROUP
    column = group * GROUP + within
    values = tl.load(x + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
    raw = tl.load(gate + row * gate_row + column, mask=inside, other=0.0).to(tl.float32)
    opening = (1.0 if PLAIN_GATE else raw) / (1.0 + tl.exp(-raw))
    if GATE_FIRST:
        values *= opening
    values *= 1.0 / tl.sqrt(tl.sum(values * values, 0) / GROUP + eps)
    factor = tl.load(weight + group * weight_step + within, mask=inside, other=0.0)
    answer = (values.to(out.dtype.element_ty) * factor).to(tl.float32)
    if not GATE_FIRST:
        answer *= opening
    place = out + row * tl.num_programs(1) * GROUP + column
    tl.store(place, answer.to(out.dtype.element_ty), mask=inside)


def convolve(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    state: torch.Tensor,
    out: torch.Tensor,
    slots: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    longest: int,
    keeps: bool,
    opens: bool,
) -> None:
    dim, width = weight.shape
    if not x.numel():
        return
    assert x[0].is_contiguous()
    block = min(128, triton.next_power_of_2(dim))
    columns, requests = triton.cdiv(dim, block), slots.shape[0]
    _convolve[(requests, triton.cdiv(longest, _TOKENS), columns)](
        x, weight, weight if bias is None else bias, state, out, slots, seq_lens, query_starts,
        x.stride(0), state.stride(0), dim,
        WIDTH=width, HAS_BIAS=bias is not None, OPENS=opens, TOKENS=_TOKENS, BLOCK=block, num_warps=1,
    )  # fmt: skip
    if keeps:
        _keep_inputs[(requests, columns)](
            x, state, slots, seq_lens, query_starts, x.stride(0), state.stride(0), dim,
            KEPT=width - 1, BLOCK=block, num_warps=1,
        )  # fmt: skip


def recur(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    step: torch.Tensor,
    strength: torch.Tensor | None,
    rate: torch.Tensor,
    bias: torch.Tensor,
    skip: torch.Tensor | None,
    state: torch.Tensor,
    out: torch.Tensor,
    slots: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    keeps: bool,
    least_step: float,
    lower_bound: float | None,
    gate: torch.Tensor | None,
) -> None:
    heads, values, keys = state.shape[1:]
    if not v.numel():
        return
    opening, opened = step if strength is None else strength, v if gate is None else gate
    assert all(one[0].is_contiguous() for one in (q, k, v, step, opening, opened)), (
        "rows lie apart, not what is in them"
    )
    block = min(_VALUES, triton.next_power_of_2(values))
    _recur[(slots.shape[0], heads, triton.cdiv(values, block))](
        q, k, v, step, opening, rate, bias, rate if skip is None else skip, opened, state, out,
        slots, seq_lens, query_starts, q.stride(0), k.stride(0), v.stride(0), step.stride(0),
        opening.stride(0), opened.stride(0), heads // k.shape[1], least_step, lower_bound or 0.0,
        keys**-0.5, heads, keys, values, DELTA=strength is not None, SKIP=skip is not None, KEEPS=keeps,
        PER_KEY=step.dim() == 3, RATES=rate.dim() == 2, BOUNDED=lower_bound is not None,
        GATED=gate is not None, BLOCK_K=triton.next_power_of_2(keys), BLOCK_V=block, num_warps=1,
    )  # fmt: skip


def gated_norm(
    x: torch.Tensor,
    gate: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    group: int,
    eps: float,
    gate_first: bool,
    plain_gate: bool,
) -> None:
    rows, size = x.shape
    if not rows:
        return
    _gated_norm[(rows, size // group)](
        x, gate, weight, out, x.stride(0), gate.stride(0), group,
        0 if weight.numel() == group else group, eps,
        GATE_FIRST=gate_first, PLAIN_GATE=plain_gate, BLOCK=triton.next_power_of_2(group),
        num_warps=1 if group <= 256 else 4,
    )  # fmt: skip

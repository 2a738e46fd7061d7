"""Triton kernels of recurrent layers. They read lengths and slots on the device, so graphs can hold them."""

# mypy: disallow-untyped-defs=False

import triton
import triton.language as tl

TOKENS = 32  # that one program convolves
VALUES = 16  # of a state that one program holds


@triton.jit
def convolve(
    x, weight, bias, state, out, slots, seq_lens, starts, x_row, state_slot, DIM,
    WIDTH: tl.constexpr, HAS_BIAS: tl.constexpr, TOKENS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per (request, tokens, channels). The state holds the inputs before the request's rows."""
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
        answer = total / (1.0 + tl.exp(-total))
        tl.store(out + (first + at) * DIM + column, answer.to(out.dtype.element_ty), mask=inside)
        at += 1


@triton.jit
def keep_inputs(
    x, state, slots, seq_lens, starts, x_row, state_slot, DIM, KEPT: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One program per (request, channels): keep the last KEPT inputs, some of which may be old ones."""
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
def recur(
    q, k, v, step, strength, rate, bias, skip, state, out, slots, seq_lens, starts, q_row, k_row, v_row,
    step_row, strength_row, shared_by, least_step, scale, HEADS, K, V, DELTA: tl.constexpr,
    SKIP: tl.constexpr, KEEPS: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """One program per (request, head, values), token after token."""
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
    decay = -tl.exp(tl.load(rate + head).to(tl.float32))
    start = tl.load(bias + head).to(tl.float32)
    past = tl.load(skip + head).to(tl.float32) if SKIP else 0.0
    of_key = head // shared_by * K + key
    at = first
    while at < first + count:
        query = tl.load(q + at * q_row + of_key, mask=keys, other=0.0).to(tl.float32)
        known = tl.load(k + at * k_row + of_key, mask=keys, other=0.0).to(tl.float32)
        own = tl.load(v + at * v_row + head * V + value, mask=values, other=0.0).to(tl.float32)
        raw = tl.load(step + at * step_row + head).to(tl.float32) + start
        taken = tl.where(raw > 20.0, raw, tl.log(1.0 + tl.exp(tl.minimum(raw, 20.0))))
        taken = tl.maximum(taken, least_step)
        held *= tl.exp(decay * taken)
        if DELTA:
            query *= scale / tl.sqrt(tl.sum(query * query, 0) + 1e-6)
            known /= tl.sqrt(tl.sum(known * known, 0) + 1e-6)
            opening = tl.load(strength + at * strength_row + head).to(tl.float32)
            write = (own - tl.sum(held * known[None, :], 1)) / (1.0 + tl.exp(-opening))
        else:
            write = own * taken
        held += write[:, None] * known[None, :]
        answer = tl.sum(held * query[None, :], 1) + past * own
        tl.store(out + (at * HEADS + head) * V + value, answer.to(out.dtype.element_ty), mask=values)
        at += 1
    if KEEPS:
        tl.store(place, held.to(state.dtype.element_ty), mask=both & (count > 0))


@triton.jit
def gated_norm(
    x, gate, weight, out, x_row, gate_row, GROUP, weight_step, eps,
    GATE_FIRST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per (row, group)."""
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    within = tl.arange(0, BLOCK)
    inside = within < GROUP
    column = group * GROUP + within
    values = tl.load(x + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
    raw = tl.load(gate + row * gate_row + column, mask=inside, other=0.0).to(tl.float32)
    opening = raw / (1.0 + tl.exp(-raw))
    if GATE_FIRST:
        values *= opening
    values *= 1.0 / tl.sqrt(tl.sum(values * values, 0) / GROUP + eps)
    factor = tl.load(weight + group * weight_step + within, mask=inside, other=0.0)
    answer = (values.to(out.dtype.element_ty) * factor).to(tl.float32)
    if not GATE_FIRST:
        answer *= opening
    place = out + row * tl.num_programs(1) * GROUP + column
    tl.store(place, answer.to(out.dtype.element_ty), mask=inside)

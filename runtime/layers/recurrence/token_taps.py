"""A causal convolution by taps that each token brings: one for each channel of itself and of those before it.

Plain torch, on every device: nothing is copied to the host.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from runtime.layers.opaque import opaque_op
from runtime.layers.recurrence.base import Rows


def convolve_by_tokens(x: torch.Tensor, taps: torch.Tensor, state: torch.Tensor, rows: Rows) -> torch.Tensor:
    """x [T, channels], taps [T, channels, width], state [slots, channels, width - 1] -> its silu."""
    return token_conv(x, taps, state, rows.slots, rows.seq_lens, rows.query_starts, rows.keeps)


@opaque_op("sgl_tune::token_conv", mutates_args=("state",))
def token_conv(
    x: torch.Tensor,
    taps: torch.Tensor,
    state: torch.Tensor,
    slots: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    keeps: bool,
) -> torch.Tensor:
    earlier = taps.shape[2] - 1
    before = _before(state, slots, seq_lens, query_starts)
    at = torch.arange(len(x), device=x.device)
    request = torch.searchsorted(query_starts[1:].contiguous(), at, right=True).clamp_(max=len(slots) - 1)
    found = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for behind in range(earlier, -1, -1):
        seen = _seen(x, before, query_starts[request], request, at - behind)
        found += seen * taps[:, :, earlier - behind].float()
    if keeps and earlier:
        ends, each = query_starts[1:], torch.arange(len(slots), device=x.device)
        last = [_seen(x, before, query_starts[:-1], each, ends - step) for step in range(earlier, 0, -1)]
        state[slots] = torch.stack(last, dim=-1).to(state.dtype)
    return F.silu(found).to(x.dtype)


@token_conv.register_fake
def _(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _before(
    state: torch.Tensor, slots: torch.Tensor, seq_lens: torch.Tensor, query_starts: torch.Tensor
) -> torch.Tensor:
    """[requests, channels, width - 1] of what is kept, and of new requests nothing."""
    goes_on = seq_lens > query_starts[1:] - query_starts[:-1]
    return state[slots].float() * goes_on[:, None, None]


def _seen(
    x: torch.Tensor, before: torch.Tensor, starts: torch.Tensor, request: torch.Tensor, place: torch.Tensor
) -> torch.Tensor:
    """Of each request its row at `place`, or one that is kept where that is in front of its rows."""
    is_own, earlier = place >= starts, before.shape[2]
    kept = before[request, :, (place - starts + earlier).clamp(0, max(earlier - 1, 0))] if earlier else 0
    own = x[place.clamp(min=0)].float()
    return torch.where(is_own[:, None], own, kept) if earlier else own

"""The requests and tokens of one forward: device tensors for kernels, Python numbers for control.

Tokens are packed request after request. `query_starts[i]` is the first row of request i. `seq_lens[i]` counts
its tokens including the new ones; the difference is in the KV pool already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate

import torch

from runtime.forward.dp_attention import DpTokens
from runtime.forward.kv_pool import PADDING_REQUEST, PADDING_SLOT


class ForwardMode(Enum):
    EXTEND = "extend"
    DECODE = "decode"
    TARGET_VERIFY = "target_verify"
    DRAFT_EXTEND = "draft_extend"


class LogitsMode(Enum):
    """Which rows the LM head sees: the last of each request, all rows, or those in `logits_indices`."""

    LAST = "last"
    ALL = "all"
    INDICES = "indices"


@dataclass(frozen=True, slots=True, eq=False)
class ForwardBatch:
    mode: ForwardMode
    input_ids: torch.Tensor  # [T]
    positions: torch.Tensor  # [T]
    out_cache_loc: torch.Tensor  # [T] the KV slot each new token is written to
    req_pool_indices: torch.Tensor  # [bs] rows of the request table
    seq_lens: torch.Tensor  # [bs] including the new tokens
    query_starts: torch.Tensor  # [bs + 1]
    max_query_len: int  # or more: kernels size their grids by it
    max_seq_len: int  # likewise
    logits_mode: LogitsMode = LogitsMode.LAST
    logits_indices: torch.Tensor | None = None
    dp: DpTokens | None = None
    dummy: bool = False  # has no real requests, so autotuning may skip its logits

    @property
    def num_tokens(self) -> int:
        return self.input_ids.shape[0]

    @property
    def num_requests(self) -> int:
        return self.seq_lens.shape[0]

    def with_dp(self, dp: DpTokens) -> ForwardBatch:
        return replace(self, dp=dp)


def dummy_decode_batch(rows: int, width: int, device: torch.device) -> ForwardBatch:
    """Return a batch of `rows` requests of `width` tokens that read and write only the padding slot."""
    mode = ForwardMode.DECODE if width == 1 else ForwardMode.TARGET_VERIFY
    batch = packed(mode, [width] * rows, [0] * rows, [0] * rows * width, device)
    logits_mode = LogitsMode.LAST if width == 1 else LogitsMode.ALL
    return replace(batch, logits_mode=logits_mode, dummy=True)


def dummy_extend_batch(tokens: int, context_length: int, device: torch.device) -> ForwardBatch:
    """Return a prefill of `tokens` in as few requests as the context length allows, on the padding slot."""
    full, rest = divmod(tokens, context_length)
    lens = [context_length] * full + [rest] * (rest > 0)
    return replace(packed(ForwardMode.EXTEND, lens, [0] * len(lens), [0] * tokens, device), dummy=True)


def packed(
    mode: ForwardMode, lens: list[int], prefixes: list[int], ids: Sequence[int], device: torch.device
) -> ForwardBatch:
    """Return a batch on the padding slot; request i has `lens[i]` new tokens after `prefixes[i]` old ones."""
    totals = [prefix + length for prefix, length in zip(prefixes, lens, strict=True)]
    return ForwardBatch(
        mode=mode,
        input_ids=_ints(ids, device),
        positions=_ints([p for span in zip(prefixes, totals, strict=True) for p in range(*span)], device),
        out_cache_loc=torch.full((len(ids),), PADDING_SLOT, dtype=torch.int64, device=device),
        req_pool_indices=torch.full((len(lens),), PADDING_REQUEST, dtype=torch.int64, device=device),
        seq_lens=_ints(totals, device),
        query_starts=_ints([0, *accumulate(lens)], device),
        max_query_len=max(lens, default=0),
        max_seq_len=max(totals, default=0),
    )


class StaticBuffers:
    """Input tensors of the graphs, one per field at the largest size; every batch uses a slice of each."""

    def __init__(self, max_requests: int, max_tokens: int, context_length: int, device: torch.device) -> None:
        def ints(size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.int64, device=device)

        self.context_length = context_length
        self.input_ids = ints(max_tokens)
        self.positions = ints(max_tokens)
        self.out_cache_loc = ints(max_tokens)
        self.req_pool_indices = ints(max_requests)
        self.seq_lens = ints(max_requests)
        self.query_starts = ints(max_requests + 1)

    def fill(self, batch: ForwardBatch, requests: int, tokens: int, width: int = 0) -> ForwardBatch:
        """Copy `batch` in, and return it padded to `requests` and `tokens`, to capture or replay with.

        With `width` (decode, verify) padding requests have `width` padding tokens each. In ragged batches
        padding requests are empty, and padding tokens belong to no request.
        """
        starts = self.query_starts[: requests + 1]
        if width:
            torch.arange(0, requests * width + 1, width, out=starts)
        else:
            _padded(starts, batch.query_starts, requests + 1, batch.num_tokens)
        table_rows = _padded(self.req_pool_indices, batch.req_pool_indices, requests, PADDING_REQUEST)
        return replace(
            batch,
            input_ids=_padded(self.input_ids, batch.input_ids, tokens, 0),
            positions=_padded(self.positions, batch.positions, tokens, 0),
            out_cache_loc=_padded(self.out_cache_loc, batch.out_cache_loc, tokens, PADDING_SLOT),
            req_pool_indices=table_rows,
            seq_lens=_padded(self.seq_lens, batch.seq_lens, requests, width),
            query_starts=starts,
            max_query_len=width or tokens,
            max_seq_len=self.context_length,
        )


def _padded(buffer: torch.Tensor, values: torch.Tensor, size: int, padding: int) -> torch.Tensor:
    buffer[: values.shape[0]].copy_(values)
    buffer[values.shape[0] : size].fill_(padding)
    return buffer[:size]


def _ints(values: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64).to(device)

"""The kernels of blocks of tokens, interpreted on a CPU: what the CPU's own say, chosen and attended to.

Half precision stands for bf16, whose products the interpreter takes of its bits.
"""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch

from runtime.layers.attention import block_kernels, flash, reference
from runtime.layers.attention.reference import Paging
from tests.runtime.attention_cases import LENGTHS, Lengths, relative_error

SIZE, COUNT, HEADS = 16, 3, 2
NAMES = ("behind prefixes", "decode", "ragged prefill")


def _paging(lengths: Lengths) -> Paging:
    totals = [before + new for before, new in zip(lengths.prefixes, lengths.new, strict=True)]
    slots = torch.randperm(sum(totals)) + 1
    table = torch.zeros(len(totals) + 1, max(totals), dtype=torch.int32)
    for row, part in enumerate(slots.split(totals)):
        table[row + 1, : len(part)] = part
    starts = torch.tensor([0, *accumulate(lengths.new)])
    requests = torch.arange(len(totals)) + 1
    return Paging(table, requests, torch.tensor(totals), starts, max(lengths.new))


def _scores(of: object, q: torch.Tensor, keys: torch.Tensor, paging: Paging, first: int) -> torch.Tensor:
    blocks = -(-paging.table.shape[1] // SIZE)
    out = torch.full((q.shape[0] - first, HEADS, blocks), float("-inf"))
    of.block_scores(q, keys, paging, out, first, SIZE, 2)  # type: ignore[attr-defined]
    return out


@pytest.mark.parametrize("lengths", [LENGTHS[name] for name in NAMES], ids=NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
def test_blocks_are_scored_as_on_a_cpu(lengths: Lengths, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    paging = _paging(lengths)
    q = torch.randn(sum(lengths.new), 2 * HEADS, 24).to(dtype)[:, ::2]
    keys = torch.randn(int(paging.seq_lens.sum()) + 1, 24).to(dtype)
    for first in (0, sum(lengths.new) // 2):
        here, there = (_scores(of, q, keys, paging, first) for of in (reference, block_kernels))
        torch.testing.assert_close(there, here, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("lengths", [LENGTHS[name] for name in NAMES], ids=NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
def test_chosen_blocks_are_attended_to_as_on_a_cpu(lengths: Lengths, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    paging = _paging(lengths)
    tokens, slots = sum(lengths.new), int(paging.seq_lens.sum()) + 1
    q, keys, values = (torch.randn(rows, heads, 32).to(dtype) for rows, heads in (
        (tokens, 3 * HEADS), (slots, HEADS), (slots, HEADS)))  # fmt: skip
    best = _scores(reference, torch.randn(tokens, HEADS, 32), torch.randn(slots, 32), paging, 0)
    best = torch.nn.functional.pad(best, (0, COUNT), value=float("-inf")).topk(COUNT, sorted=False)
    chosen = best.indices.masked_fill(best.values == float("-inf"), -1).int()
    rest = (0.2, 0, None, 0.0, 0, chosen, SIZE)
    here = reference.grouped(q, keys, values, paging, *rest)
    there = flash.grouped(q, keys, values, paging, *rest)
    assert relative_error(there, here.double()) < (1e-5 if dtype is torch.float32 else 1e-2)

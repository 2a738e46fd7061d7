"""Attention both ways by its kernel, interpreted on a CPU: what the CPU's own says."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch

from runtime.layers.attention import flash, reference
from runtime.layers.attention.reference import Paging
from tests.runtime.attention_cases import relative_error

LENGTHS = (1, 37, 90, 16)


@pytest.mark.parametrize("window", [0, 1, 7, 40])
def test_tokens_behind_a_query_are_seen_as_those_before_it(window: int) -> None:
    torch.manual_seed(0)
    tokens = sum(LENGTHS)
    slots = torch.randperm(tokens) + 1
    table = torch.zeros(len(LENGTHS), max(LENGTHS), dtype=torch.int32)
    for row, part in enumerate(slots.split(LENGTHS)):
        table[row, : len(part)] = part
    starts, lengths = torch.tensor([0, *accumulate(LENGTHS)]), torch.tensor(LENGTHS)
    paging = Paging(table, torch.arange(len(LENGTHS)), lengths, starts, max(LENGTHS))
    q = torch.randn(tokens, 4, 32)
    keys, values = torch.randn(tokens + 1, 2, 32), torch.randn(tokens + 1, 2, 32)
    here, there = (
        made(q, keys, values, paging, 0.2, window, None, both_ways=True)
        for made in (reference.grouped, flash.grouped)
    )
    assert relative_error(there, here) < 1e-5

"""Scores that are capped and grow with a query's position, and sinks: the kernel of attention on a CPU."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch

from runtime.layers.attention import flash, reference
from runtime.layers.attention.reference import Paging
from tests.runtime.attention_cases import LENGTHS, Lengths, relative_error


def _paging(lengths: Lengths) -> Paging:
    totals = [before + new for before, new in zip(lengths.prefixes, lengths.new, strict=True)]
    slots = torch.randperm(sum(totals))
    table = torch.zeros(len(totals), max(totals), dtype=torch.int32)
    for row, part in zip(table, slots.split(totals), strict=True):
        row[: len(part)] = part
    starts = torch.tensor([0, *accumulate(lengths.new)])
    return Paging(table, torch.arange(len(totals)), torch.tensor(totals), starts, max(lengths.new))


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize(("cap", "growth"), [(0.7, 0), (0.7, 12), (0.0, 2)])
def test_scores_are_those_of_a_cpu(lengths: Lengths, cap: float, growth: int) -> None:
    torch.manual_seed(0)
    paging = _paging(lengths)
    tokens, slots = sum(lengths.new), int(paging.seq_lens.sum())
    q, keys, values = torch.randn(tokens, 6, 32), torch.randn(slots, 2, 32), torch.randn(slots, 2, 32)
    rest = (0.2, 0, None, cap, 0, None, 1, growth)
    here = reference.grouped(q, keys, values, paging, *rest)
    there = flash.grouped(q, keys, values, paging, *rest)
    assert relative_error(there, here.double()) < 1e-5


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("of_tokens", [False, True])
def test_sinks_are_those_of_a_cpu(lengths: Lengths, of_tokens: bool) -> None:
    torch.manual_seed(0)
    paging = _paging(lengths)
    tokens, slots = sum(lengths.new), int(paging.seq_lens.sum())
    q, keys, values = torch.randn(tokens, 6, 32), torch.randn(slots, 2, 32), torch.randn(slots, 2, 32)
    sinks = torch.randn(tokens, 6) if of_tokens else torch.randn(6)
    here = reference.grouped(q, keys, values, paging, 0.2, 7, sinks)
    there = flash.grouped(q, keys, values, paging, 0.2, 7, sinks)
    assert relative_error(there, here.double()) < 1e-5

"""The kernel of recurrences, interpreted on a CPU, where channels of a key have rates of their own and a gate
opens what is answered: what the CPU's own says."""

from __future__ import annotations

import pytest
import torch

from runtime.layers.recurrence import kernels, reference
from tests.runtime.hybrids import RaggedRows

CPU = torch.device("cpu")


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize(("values", "groups"), [(1, 1), (1, 2), (3, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_heads_forget_by_channels_at_their_own_rates(
    seed: int, values: int, groups: int, keeps: bool
) -> None:
    torch.manual_seed(seed)
    rows, heads, keys = RaggedRows((5, 0, 3)[seed:], (0, 2, 7)[seed:]), 4, 6
    count = rows.total
    told, wide = rows.tensors(CPU), torch.randn(count, 2 * groups, keys)
    q, k = wide[:, :groups], wide[:, groups:]
    v, gate = torch.randn(count, heads, values), torch.randn(count, heads, 2 * values)[..., :values]
    step, skip, gate = torch.randn(count, heads), torch.randn(heads), gate.contiguous()
    rate, start, state = torch.randn(heads, keys), torch.zeros(heads, 1), torch.randn(9, heads, values, keys)
    requests = reference.Requests(told["slots"], told["seq_lens"], told["query_starts"])
    here, own = torch.zeros_like(v), state.clone()
    gates = reference.gates(step, None, rate, start, 0.0)
    reference.recur(q, k, v, gates, skip, own, here, requests, keeps, gate)
    there = torch.zeros_like(v)
    kernels.recur(
        *(q, k, v, step, None, rate, start, skip, state, there),
        *(told["slots"], told["seq_lens"], told["query_starts"], keeps, 0.0, None, gate),
    )
    torch.testing.assert_close(there, here, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(state, own, atol=1e-5, rtol=1e-5)

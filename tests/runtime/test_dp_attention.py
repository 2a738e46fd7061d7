"""Rows of attention-DP ranks, gathered and scattered on real processes."""

from __future__ import annotations

import pytest
import torch

from runtime.forward.comm import Communicator, VirtualCommunicator
from runtime.forward.dp_attention import gather, gather_rows, own_rows, padded, scatter
from runtime.server.parallel import ParallelConfig
from tests.runtime.ranks import Ranks

DP2 = ParallelConfig(tp=4, dp=2, enable_dp_attention=True)
TP8 = ParallelConfig(tp=8)


def test_rows_are_padded_for_the_attention_group() -> None:
    comm = VirtualCommunicator(DP2)
    assert [padded(rows, comm) for rows in (0, 5, 6)] == [0, 6, 6]
    assert gather(torch.ones(5, 2), comm).shape == (12, 2)


def _round_trip(comm: Communicator, rows: int) -> tuple[list[float], list[float], int]:
    """Rows numbered over all DP ranks, gathered; then a partial sum from each TP rank, scattered back."""
    first = rows * comm.rank("attn_dp")
    gathered = gather(torch.arange(first, first + rows).float()[:, None] + 1, comm)
    back = scatter(gathered * (comm.rank("tp") + 1), rows, comm)
    return gathered.flatten().tolist(), back.flatten().tolist(), first


@pytest.mark.parametrize("rows", [1, 3, 4])
def test_rows_are_gathered_and_their_sums_scattered(ranks: Ranks, rows: int) -> None:
    answers = ranks.run(DP2, _round_trip, rows)
    assert len({tuple(gathered) for gathered, _, _ in answers}) == 1, "every rank sees the same rows"
    assert [row for row in answers[0][0] if row] == list(range(1, 2 * rows + 1))
    for _, back, first in answers:
        assert back == [10 * row for row in range(first + 1, first + rows + 1)]


def _head_rows(comm: Communicator, rows: int) -> tuple[list[float], list[float]]:
    gathered = gather_rows(torch.full((rows, 1), float(comm.rank("attn_dp") + 1)), comm)
    return gathered.flatten().tolist(), own_rows(gathered, rows, comm).flatten().tolist()


def test_head_rows_lie_rank_after_rank(ranks: Ranks) -> None:
    for rank, (gathered, own) in enumerate(ranks.run(DP2, _head_rows, 2)):
        assert gathered == [1, 1, 2, 2]
        assert own == ([1, 1] if rank < 2 else [2, 2])


def test_nothing_is_gathered_without_dp_attention() -> None:
    comm, x = VirtualCommunicator(TP8), torch.ones(4, 2)
    assert gather(x, comm) is x
    assert scatter(x, 4, comm) is x

"""Collectives between real processes, and the same calls on a virtual rank."""

import pytest
import torch

from runtime.forward.comm import Communicator, VirtualCommunicator
from runtime.server.errors import ConfigError
from runtime.server.parallel import ParallelConfig
from tests.runtime.ranks import Ranks

MIXED = ParallelConfig(tp=4, dp=2, ep=2, enable_dp_attention=True)


def _own(comm: Communicator, rows: int = 2) -> torch.Tensor:
    return torch.full((rows, 3), float(comm.layout.rank + 1))


def _sum(comm: Communicator, group: str) -> float:
    return comm.all_reduce(_own(comm), group)[0, 0].item()


def _gathered(comm: Communicator, group: str) -> list[float]:
    x = _own(comm)
    out = x.new_empty(2 * comm.size(group), 3)
    comm.all_gather_into(out, x, group)
    return out[::2, 0].tolist()


def _scattered(comm: Communicator, group: str) -> list[float]:
    x = torch.arange(comm.size(group)).float()[:, None] + 10 * (comm.layout.rank + 1)
    out = x.new_empty(1, 1)
    comm.reduce_scatter_into(out, x, group)
    return out.flatten().tolist()


def _exchanged(comm: Communicator, group: str) -> list[float]:
    x = torch.arange(comm.size(group)).float()[:, None] + 10 * (comm.layout.rank + 1)
    out = torch.empty_like(x)
    comm.all_to_all_into(out, x, group)
    return out.flatten().tolist()


def _through_the_pipeline(comm: Communicator) -> float:
    x = comm.receive_previous(torch.zeros(1))
    x += 1
    comm.send_next(x)
    return x.item()


def _control(comm: Communicator) -> tuple[int, float]:
    rank = comm.layout.rank
    least = comm.min_over(10 - rank, "tp"), comm.min_over(0.5 + rank)
    comm.barrier()
    return least


def test_sums_stay_inside_their_group(ranks: Ranks) -> None:
    assert ranks.run(MIXED, _sum, "tp") == [10, 10, 10, 10]
    assert ranks.run(MIXED, _sum, "attn_tp") == [3, 3, 7, 7]
    assert ranks.run(MIXED, _sum, "attn_dp") == [4, 6, 4, 6]
    assert ranks.run(MIXED, _sum, "pp") == [1, 2, 3, 4]


def test_gathers_are_in_rank_order(ranks: Ranks) -> None:
    assert ranks.run(MIXED, _gathered, "moe_ep") == [[1, 3], [2, 4], [1, 3], [2, 4]]
    assert ranks.run(MIXED, _gathered, "world") == [[1, 2, 3, 4]] * 4


def test_reduce_scatter_and_all_to_all_stay_inside_their_group(ranks: Ranks) -> None:
    assert ranks.run(MIXED, _scattered, "moe_tp") == [[30], [32], [70], [72]]
    assert ranks.run(MIXED, _exchanged, "moe_tp") == [[10, 20], [11, 21], [30, 40], [31, 41]]


def test_a_pipeline_stage_receives_what_the_one_before_sends(ranks: Ranks) -> None:
    assert ranks.run(ParallelConfig(tp=2, pp=2), _through_the_pipeline) == [1, 1, 2, 2]


def test_all_ranks_get_the_smallest_value(ranks: Ranks) -> None:
    assert ranks.run(ParallelConfig(tp=4), _control) == [(7, 0.5)] * 4


@pytest.mark.parametrize("rank", range(4))
def test_a_virtual_rank_fills_the_same_buffers_from_its_own(rank: int) -> None:
    comm = VirtualCommunicator(MIXED, rank)
    own = float(rank + 1)
    assert _sum(comm, "tp") == own
    assert _gathered(comm, "tp") == [own] * 4
    assert _scattered(comm, "tp") == [10 * own + rank]
    assert _control(comm)[:2] == (10 - rank, 0.5 + rank)


def test_a_virtual_stage_receives_uneven_rows() -> None:
    comm = VirtualCommunicator(ParallelConfig(pp=2), 1)
    assert comm.receive_previous(torch.zeros(8, 4)).unique().numel() > 8


def test_a_buffer_of_the_wrong_size_is_refused() -> None:
    comm = VirtualCommunicator(ParallelConfig(tp=4))
    with pytest.raises(ValueError, match=r"over tp of 4 ranks"):
        comm.all_gather_into(torch.empty(6, 3), torch.empty(2, 3), "tp")
    with pytest.raises(ValueError, match=r"over tp of 4 ranks"):
        comm.reduce_scatter_into(torch.empty(2, 3), torch.empty(6, 3), "tp")


def test_a_group_of_one_copies(ranks: Ranks) -> None:
    assert ranks.run(ParallelConfig(tp=2), _gathered, "pp") == [[1], [2]]


def test_processes_and_flags_must_agree(ranks: Ranks) -> None:
    with pytest.raises(AssertionError, match=r"2 processes joined, but --tp 4"):
        ranks.run(ParallelConfig(tp=2), _wrong_size)


def _wrong_size(comm: Communicator) -> None:
    from runtime.forward.comm import DistributedCommunicator

    try:
        DistributedCommunicator(ParallelConfig(tp=4))
    except ConfigError as error:
        raise RuntimeError(str(error)) from None

"""Token counts of every runner, and rows gathered and scattered on real processes."""

import threading

import pytest
import torch

from runtime.forward.comm import Communicator, VirtualCommunicator
from runtime.forward.dp_attention import (
    RUNNER_KINDS,
    PaddingMode,
    PeerRows,
    dp_buffer_len,
    gather,
    gather_rows,
    own_rows,
    plan_dp_tokens,
    scatter,
)
from runtime.server.errors import ConfigError
from runtime.server.parallel import ParallelConfig
from tests.runtime.ranks import Ranks

DP8 = ParallelConfig(tp=8, dp=8, enable_dp_attention=True)
DP2 = ParallelConfig(tp=4, dp=2, enable_dp_attention=True)
TP8 = ParallelConfig(tp=8)


@pytest.mark.parametrize("kind", RUNNER_KINDS)
def test_every_runner_brings_the_same_rows_from_every_rank(kind: str) -> None:
    dp = plan_dp_tokens(24, kind, DP8, requests=6, topk=4)
    assert dp.global_num_tokens_cpu == [24] * 8
    assert dp.global_num_tokens is not None and dp.global_num_tokens.tolist() == [24] * 8
    assert (dp.buffer_len, dp.local_len, dp.padding) == (192, 24, PaddingMode.MAX_LEN)


def test_a_draft_extend_asks_the_head_for_one_row_a_request() -> None:
    assert plan_dp_tokens(24, "draft_extend", DP8, requests=6).logprob_num_tokens_cpu == [6] * 8
    assert plan_dp_tokens(24, "draft", DP8).logprob_num_tokens_cpu == [24] * 8


def test_a_frozen_kv_draft_counts_requests_times_topk() -> None:
    assert plan_dp_tokens(999, "frozen_kv_mtp", DP8, requests=6, topk=3).global_num_tokens_cpu == [18] * 8


@pytest.mark.parametrize("kind", ["draft_extend", "frozen_kv_mtp"])
def test_what_follows_requests_needs_them(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"pass requests="):
        plan_dp_tokens(24, kind, DP8)


def test_an_unknown_runner_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown runner 'decode'"):
        plan_dp_tokens(24, "decode", DP8)


def test_without_dp_attention_nothing_is_counted() -> None:
    for parallel in (TP8, ParallelConfig(tp=4, dp=2)):
        dp = plan_dp_tokens(24, "decode_graph", parallel)
        assert (dp.global_num_tokens_cpu, dp.global_num_tokens, dp.buffer_len) == (None, None, 24)


def test_an_all_to_all_without_dp_attention_counts_its_own() -> None:
    dp = plan_dp_tokens(30, "decode_graph", TP8, moe_a2a_backend="flashinfer")
    assert (dp.global_num_tokens_cpu, dp.buffer_len) == ([32], 32)


def test_counts_are_padded_for_the_attention_group() -> None:
    assert plan_dp_tokens(5, "decode_graph", DP2).global_num_tokens_cpu == [6, 6]


@pytest.mark.parametrize(
    ("counts", "is_extend", "padding", "padded"),
    [
        ([10, 9], False, PaddingMode.MAX_LEN, [10, 10]),
        ([10, 0], False, PaddingMode.MAX_LEN, [10, 10]),
        ([10, 9], True, PaddingMode.SUM_LEN, [10, 10]),
        ([1, 7], True, PaddingMode.SUM_LEN, [2, 8]),
    ],
)
def test_an_eager_forward_takes_the_cheaper_padding(
    counts: list[int], is_extend: bool, padding: PaddingMode, padded: list[int]
) -> None:
    peers = PeerRows(counts, counts, is_extend)
    dp = plan_dp_tokens(counts[0], "eager", DP2, peers=peers)
    assert (dp.padding, dp.global_num_tokens_cpu) == (padding, padded)


def test_one_busy_rank_of_eight_is_summed() -> None:
    dp = plan_dp_tokens(100, "eager", DP8, peers=PeerRows([100] + [1] * 7, [100] + [1] * 7), dp_rank=3)
    assert (dp.padding, dp.buffer_len, dp.local_len) == (PaddingMode.SUM_LEN, 107, 1)


def test_peers_of_another_number_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"rows of 2 attention-DP ranks"):
        plan_dp_tokens(4, "eager", DP2, peers=PeerRows([4], [4]))


def test_published_sizes_are_read_back_and_belong_to_their_thread() -> None:
    own = plan_dp_tokens(8, "decode_graph", DP2)
    own.publish()
    seen = [dp_buffer_len()]
    thread = threading.Thread(target=lambda: seen.append(dp_buffer_len()))
    thread.start()
    thread.join()
    assert seen[0] is own
    assert (seen[1].buffer_len, seen[1].global_num_tokens_cpu) == (0, None)


def _round_trip(
    comm: Communicator, counts: list[int], is_extend: bool
) -> tuple[list[float], list[float], int]:
    """Rows numbered over all DP ranks, gathered; then a partial sum from each TP rank, scattered back."""
    rank, rows = comm.rank("attn_dp"), counts[comm.rank("attn_dp")]
    peers = PeerRows(counts, counts, is_extend)
    plan_dp_tokens(rows, "eager", DP2, peers=peers, dp_rank=rank).publish()
    first = sum(counts[:rank])
    gathered = gather(torch.arange(first, first + rows).float()[:, None] + 1, comm)
    back = scatter(gathered * (comm.rank("tp") + 1), rows, comm)
    return gathered.flatten().tolist(), back.flatten().tolist(), first


@pytest.mark.parametrize("is_extend", [False, True])
@pytest.mark.parametrize("counts", [[4, 4], [3, 2], [5, 0], [0, 1]])
def test_rows_are_gathered_and_their_sums_scattered(ranks: Ranks, counts: list[int], is_extend: bool) -> None:
    answers = ranks.run(DP2, _round_trip, counts, is_extend)
    assert len({tuple(gathered) for gathered, _, _ in answers}) == 1, "every rank sees the same rows"
    assert [row for row in answers[0][0] if row] == list(range(1, sum(counts) + 1))
    for rank, (_, back, first) in enumerate(answers):
        rows = counts[rank // 2]
        assert back == [10 * row for row in range(first + 1, first + rows + 1)]


def _head_rows(comm: Communicator, counts: list[int]) -> tuple[list[float], list[float]]:
    rank = comm.rank("attn_dp")
    own = torch.full((counts[rank], 1), float(rank + 1))
    gathered = gather_rows(own, counts, comm)
    return gathered.flatten().tolist(), own_rows(gathered, counts, counts[rank], comm).flatten().tolist()


def test_head_rows_lie_rank_after_rank(ranks: Ranks) -> None:
    for rank, (gathered, own) in enumerate(ranks.run(DP2, _head_rows, [2, 3])):
        assert gathered == [1, 1, 2, 2, 2]
        assert own == ([1, 1] if rank < 2 else [2, 2, 2])


def test_nothing_is_gathered_without_dp_attention() -> None:
    comm = VirtualCommunicator(TP8)
    plan_dp_tokens(4, "eager", TP8).publish()
    x = torch.ones(4, 2)
    assert gather(x, comm) is x
    assert scatter(x, 4, comm) is x

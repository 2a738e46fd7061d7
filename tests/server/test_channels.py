"""What ranks open to talk, held against starts of a stock SGLang 0.5.17 on two and four H200s."""

import pytest

from runtime.server.channels import (
    eager_groups,
    fills_channels,
    groups_of_torch,
    own_groups,
    shared_buffer,
    shared_pointers,
)
from runtime.server.config import ParallelConfig, RuntimeConfig
from runtime.server.units import MIB
from tests.runtime.starts import make_preset

QWEN, LLAMA = make_preset("Qwen3-30B-A3B"), make_preset("Llama-3.1-70B")
OWN, SHARED = RuntimeConfig(disable_custom_all_reduce=True), RuntimeConfig()


@pytest.mark.parametrize(
    ("parallel", "groups"),
    [
        (ParallelConfig(), ()),
        (ParallelConfig(tp=2), (2,)),
        (ParallelConfig(tp=4, pp=2), (4, 2)),
        (ParallelConfig(tp=4, dp=4, enable_dp_attention=True), (4,)),
    ],
)
def test_a_group_of_one_opens_nothing(parallel: ParallelConfig, groups: tuple[int, ...]) -> None:
    assert own_groups(parallel) == groups


def test_groups_inside_the_tensor_parallel_one_are_torchs() -> None:
    mixed = ParallelConfig(tp=4, dp=2, ep=4, enable_dp_attention=True)
    assert groups_of_torch(QWEN, mixed) == (2,)  # attention's: 544 MiB at its first all_reduce
    assert groups_of_torch(QWEN, ParallelConfig(tp=4, ep=2)) == (2, 2)
    assert groups_of_torch(LLAMA, ParallelConfig(tp=4, ep=2)) == ()


@pytest.mark.parametrize(("ranks", "megabytes"), [(1, 0), (2, 82), (4, 24), (8, 20)])
def test_the_shared_buffer_is_as_large_as_measured(ranks: int, megabytes: int) -> None:
    """82 and 24 MiB were measured; they hold the semaphores too."""
    assert shared_buffer(ParallelConfig(tp=ranks), SHARED) // MIB in (megabytes - 2, megabytes)
    assert shared_buffer(ParallelConfig(tp=ranks), OWN) == 0
    assert shared_pointers(ParallelConfig(tp=ranks), SHARED) == (131_072 * ranks if ranks > 1 else 0)


def test_no_buffer_is_shared_between_nodes_or_without_nvlink() -> None:
    assert shared_buffer(ParallelConfig(tp=4, nnodes=2), SHARED) == 0
    assert shared_buffer(ParallelConfig(tp=4), RuntimeConfig(sm_major=12)) == 0


def test_what_does_not_fit_the_shared_buffer_opens_torchs_communicator() -> None:
    two, gathered = ParallelConfig(tp=2), ParallelConfig(tp=2, dp=2, enable_dp_attention=True)
    assert eager_groups(QWEN, two, SHARED, 4096) == ()  # 16 MiB
    assert eager_groups(QWEN, two, SHARED, 4097) == (2,)
    assert eager_groups(QWEN, two, OWN, 1) == eager_groups(QWEN, gathered, SHARED, 1) == (2,)
    assert eager_groups(QWEN, ParallelConfig(pp=2), OWN, 4096) == ()


def test_long_messages_in_graphs_take_channels_of_nccl() -> None:
    four = ParallelConfig(tp=4)
    assert fills_channels(LLAMA, four, SHARED, 8192) and not fills_channels(LLAMA, four, SHARED, 8191)
    assert fills_channels(QWEN, four, OWN, 8192) and not fills_channels(QWEN, four, OWN, 64)
    assert not fills_channels(QWEN, ParallelConfig(pp=2), OWN, 8192)

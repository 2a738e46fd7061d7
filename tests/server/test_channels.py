"""What ranks open to talk, held against starts of a stock SGLang 0.5.17 on two and four H200s."""

from dataclasses import replace
from typing import Any

import pytest

from runtime.server.channels import (
    captured_messages,
    eager_groups,
    groups_of_torch,
    own_groups,
    shared_buffer,
    shared_pointers,
)
from runtime.server.config import RuntimeConfig
from runtime.server.fused_all_reduce import least_fused_buffers
from runtime.server.parallel_config import ParallelConfig
from runtime.server.uncounted import uncounted
from runtime.server.units import MIB
from tests.runtime.starts import make_preset
from tests.server.asking import server

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


_BUFFERS = {
    9: {1: 0, 2: 80, 3: 34, 4: 24, 5: 20, 6: 20, 7: 18, 8: 18, 16: 0},
    10: {1: 0, 2: 80, 3: 64, 4: 40, 5: 36, 6: 32, 7: 30, 8: 28, 16: 24},
}


@pytest.mark.parametrize(
    ("major", "ranks", "megabytes"),
    [(major, ranks, size) for major, sizes in _BUFFERS.items() for ranks, size in sizes.items()],
)
def test_the_shared_buffer_follows_the_table(major: int, ranks: int, megabytes: int) -> None:
    """82 and 24 MiB were measured on two and four H200s: in pages of 2 MiB, the semaphores with it."""
    parallel, shared = ParallelConfig(tp=ranks), RuntimeConfig(sm_major=major)
    assert shared_buffer(parallel, shared) == megabytes * MIB
    assert shared_buffer(parallel, replace(shared, disable_custom_all_reduce=True)) == 0
    assert shared_pointers(parallel, shared) == (131_072 * ranks if megabytes else 0)


def test_no_buffer_is_shared_between_nodes_or_without_nvlink() -> None:
    assert shared_buffer(ParallelConfig(tp=4, nnodes=2), SHARED) == 0
    assert shared_buffer(ParallelConfig(tp=4), RuntimeConfig(sm_major=12)) == 0


def test_what_does_not_fit_the_shared_buffer_opens_torchs_communicator() -> None:
    two, gathered = ParallelConfig(tp=2), ParallelConfig(tp=2, dp=2, enable_dp_attention=True)
    assert eager_groups(QWEN, two, SHARED, 4096) == ()  # 16 MiB
    assert eager_groups(QWEN, two, SHARED, 4097) == (2,)
    assert eager_groups(QWEN, two, OWN, 1) == eager_groups(QWEN, gathered, SHARED, 1) == (2,)
    assert eager_groups(QWEN, ParallelConfig(pp=2), OWN, 4096) == ()


@pytest.mark.parametrize(
    ("asked", "fuses"),
    [
        ({"tp_size": 2}, True),
        ({}, False),
        ({"tp_size": 2, "enforce_disable_flashinfer_allreduce_fusion": True}, False),
        ({"tp_size": 2, "dp_size": 2, "enable_dp_attention": True}, False),
        ({"tp_size": 2, "ep_size": 2, "moe_a2a_backend": "deepep"}, False),
    ],
)
def test_an_all_reduce_that_is_fused_is_named_as_not_counted(asked: dict[str, Any], fuses: bool) -> None:
    """SGLang's own rule for Qwen3's MoE on Hopper; a dense Llama is never fused."""
    qwen = server("qwen3_moe", 17, "H200", **asked)
    assert qwen.fuses_all_reduce is fuses
    assert ("FlashInfer's fused all-reduce" in uncounted(qwen)) is fuses
    assert not server("llama", 17, "H200", **asked).fuses_all_reduce


@pytest.mark.parametrize(("version", "fuses"), [(12, False), (13, True), (23, True)])
def test_the_first_release_does_not_fuse_on_an_h20(version: int, fuses: bool) -> None:
    assert server("qwen3_moe", version, "H20", tp_size=2).fuses_all_reduce is fuses


FOUR_OF_TWO = ParallelConfig(tp=4, dp=2, enable_dp_attention=True)
GATHERED = ParallelConfig(tp=2, dp=2, enable_dp_attention=True)


@pytest.mark.parametrize(
    ("parallel", "runtime", "rows", "messages"),
    [
        (ParallelConfig(), SHARED, 8192, 0),
        (ParallelConfig(pp=2), OWN, 8192, 0),
        (ParallelConfig(tp=2), SHARED, 4096, 0),  # 16 MiB, all of which the shared buffer takes
        (ParallelConfig(tp=2), SHARED, 4097, 97),  # after attention and experts of 48 layers, the embedding
        (ParallelConfig(tp=2), OWN, 4, 97),
        (GATHERED, SHARED, 4, 96),
        (FOUR_OF_TWO, SHARED, 4, 144),  # attention's ranks sum too
    ],
)
def test_a_prefill_graph_keeps_what_nccl_sends(
    parallel: ParallelConfig, runtime: RuntimeConfig, rows: int, messages: int
) -> None:
    """Qwen3-32B on two H200s: 510 MiB on one, 920 with 2322 messages of more than 16 MiB in its graphs."""
    assert captured_messages(QWEN, parallel, runtime, rows, 48, is_prefill=True, has_head=False) == messages


@pytest.mark.parametrize(
    ("parallel", "runtime", "messages"),
    [
        (ParallelConfig(), SHARED, 0),
        (ParallelConfig(tp=2), SHARED, 1),  # the logits' parts
        (ParallelConfig(tp=2), OWN, 98),
        (GATHERED, SHARED, 97),
        (FOUR_OF_TWO, SHARED, 97),
    ],
)
def test_a_decode_graph_keeps_what_nccl_sends(
    parallel: ParallelConfig, runtime: RuntimeConfig, messages: int
) -> None:
    assert captured_messages(QWEN, parallel, runtime, 256, 48, is_prefill=False, has_head=True) == messages


@pytest.mark.parametrize(
    ("gpu", "asked", "megabytes"),
    [
        ("H200", {"tp_size": 2}, 2 * (16 + 2 + 48)),
        ("H200", {"tp_size": 8, "ep_size": 8}, 2 * (64 + 2 + 192)),
        ("H200", {"tp_size": 2, "flashinfer_allreduce_fusion_backend": "mnnvl"}, 0),
        ("B200", {"tp_size": 2}, 0),
    ],
)
def test_what_a_fused_all_reduce_takes_at_least(gpu: str, asked: dict[str, Any], megabytes: int) -> None:
    """2048 rows of 2048 for each rank, three times again as what they send; for attention and for experts."""
    qwen = server("qwen3_moe", 17, gpu, **asked)
    assert least_fused_buffers(qwen, 2048) == megabytes * MIB
    told = f"FlashInfer's fused all-reduce ({megabytes} MiB or more)"
    assert (told in uncounted(qwen, 2048)) is bool(megabytes)

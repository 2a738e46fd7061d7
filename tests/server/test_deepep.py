"""DeepEP's buffers, against its own functions and against what others saw of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime.server.deepep import DEFAULTS, Config, DeepEP, configs_of, heap_bytes, low_latency_bytes
from runtime.server.errors import ConfigError
from runtime.server.memory import _DEEPEP_MIB
from runtime.server.units import GIB, MIB
from tests.server.asking import server

# csrc/config.hpp of deepseek-ai/DeepEP at 79bbb54, compiled by g++ with stubs for CUDA's types: the larger of
# the default dispatch and combine configs for rows of bf16.
NORMAL = [
    *((2, 4096, 52470272, 0), (2, 7168, 83927552, 0), (4, 4096, 104940416, 0), (4, 7168, 167854976, 0)),
    *((8, 4096, 209880704, 0), (8, 7168, 335709824, 0)),
    *((16, 4096, 236116224, 57481344), (16, 7168, 377673984, 91887744)),
    *((24, 4096, 236116864, 78831872), (24, 7168, 377674624, 126017792)),
    *((32, 4096, 236117504, 105109120), (32, 7168, 377675264, 168023680)),
    *((48, 4096, 236118784, 157663744), (48, 7168, 377676544, 252035584)),
    *((64, 4096, 236120064, 210218240), (64, 7168, 377677824, 336047360)),
    *((96, 4096, 393531904, 325180800), (96, 7168, 629461504, 519822720)),
    *((128, 4096, 459121664, 433574400), (128, 7168, 734372864, 693096960)),
    *((144, 4096, 590297344, 487771264), (144, 7168, 944191744, 779734144)),
    *((160, 4096, 590298624, 541968000), (160, 7168, 944193024, 866371200)),
]
LOW_LATENCY = [
    *((128, 7168, 256, 1908410496), (128, 7168, 288, 2146961792), (128, 6144, 256, 1635780736)),
    *((128, 4096, 128, 545260672), (128, 2048, 256, 545261696), (256, 7168, 384, 5725228160)),
    *((1024, 7168, 384, 22900903040), (64, 5120, 160, 425985408)),
]


@pytest.mark.parametrize(("ranks", "hidden", "nvlink", "rdma"), NORMAL)
def test_the_normal_mode_takes_what_deepep_hints_at(ranks: int, hidden: int, nvlink: int, rdma: int) -> None:
    configs = DEFAULTS[ranks]
    assert max(config.nvlink_bytes(2 * hidden, ranks) for config in configs) == nvlink
    assert max(config.rdma_bytes(2 * hidden, ranks) for config in configs) == rdma


def test_a_config_of_ones_own_counts() -> None:
    assert Config(96, 12, 512, 16, 512).nvlink_bytes(14336, 8) == 3222806016
    assert Config(96, 12, 512, 16, 512).rdma_bytes(14336, 32) == 3225971712
    assert Config(24, 8, 300, 16, 500).rdma_bytes(14336, 16) == 403246464, "500 slots are 512 of 16"


@pytest.mark.parametrize(("tokens", "hidden", "experts", "size"), LOW_LATENCY)
def test_low_latency_takes_what_deepep_hints_at(tokens: int, hidden: int, experts: int, size: int) -> None:
    """sgl-project/sglang#29942 saw a server ask for the 22,900,903,040 bytes of 384 experts."""
    assert low_latency_bytes(tokens, hidden, experts) == size


def test_sglangs_reserve_is_deepseek_v3s_buffer_in_whole_units() -> None:
    """On eight ranks: 1820 MiB for 128 tokens, 228 less than SGLang keeps free; with the units that NVSHMEM
    takes, 512 more than that."""
    wanted = low_latency_bytes(128, 7168, 256)
    assert wanted // MIB == 1820 and _DEEPEP_MIB - wanted // MIB == 228
    assert DeepEP().buffers(8, 7168, 256).heap == (_DEEPEP_MIB + 512) * MIB


def test_most_of_what_deepeps_own_test_was_seen_to_take_is_told() -> None:
    """deepseek-ai/DeepEP#510, tests/test_low_latency.py on eight GPUs: 3.1 GiB free before and not after."""
    buffers = DeepEP("low_latency").buffers(8, 7168, 288)
    told = (buffers.nvlink + buffers.heap + buffers.workspace) / GIB
    assert buffers.nvlink == 0 and told == pytest.approx(2.53, abs=0.01) and 3.1 - told < 0.6


def test_a_heap_has_a_unit_for_nvshmem_itself() -> None:
    assert heap_bytes(0) == 0
    assert heap_bytes(1) == heap_bytes(512 * MIB - 128) == 1024 * MIB
    assert heap_bytes(512 * MIB) == 1536 * MIB, "it is asked for with its alignment"


def test_the_mode_says_which_buffers_there_are() -> None:
    normal, fast = DeepEP("normal"), DeepEP("low_latency")
    assert normal.buffers(8, 7168, 256).heap == 0, "of one node: NVLink alone"
    assert normal.buffers(16, 7168, 256).heap == heap_bytes(91887744)
    assert fast.buffers(8, 7168, 256).nvlink == 0
    assert [DeepEP().is_normal(extend) for extend in (True, False)] == [True, False]
    assert normal.is_normal(False) and not fast.is_normal(True)


def test_what_deepep_does_not_take_is_refused() -> None:
    with pytest.raises(ConfigError, match="no config for 12 ranks"):
        DeepEP().buffers(12, 7168, 256)
    with pytest.raises(ConfigError, match="at most 1024 tokens a rank, not 2048"):
        low_latency_bytes(2048, 7168, 256)


@pytest.mark.parametrize("version", [12, 17, 23])
def test_a_server_reads_its_tokens_mode_and_config(version: int) -> None:
    both = {"num_sms": 96, "num_max_nvl_chunked_recv_tokens": 512}
    config = json.dumps({"normal_dispatch": both, "normal_combine": both})
    flags: dict[str, Any] = {"tp_size": 8, "moe_a2a_backend": "deepep", "deepep_mode": "low_latency"}
    found = server("deepseek", version, **flags, others={"deepep_config": config}).deepep
    wide = Config(96, num_max_nvl_chunked_recv_tokens=512)
    assert found == DeepEP("low_latency", configs=(wide, wide))
    assert server("deepseek", version, tp_size=8).deepep is None


def test_a_config_in_a_file_is_named() -> None:
    others = {"deepep_config": "tuned.json"}
    found = server("deepseek", tp_size=8, moe_a2a_backend="deepep", others=others).deepep
    assert found is not None and found.unread == "tuned.json"


@pytest.mark.parametrize(
    "text", ['{"normal_dispatch": {}}', '{"normal_dispatch": {"sms": 4}}', "[]", '{"normal_dispatch": 3}']
)
def test_a_config_that_deepep_would_refuse_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--deepep-config"):
        configs_of(text)


@pytest.mark.parametrize("direction", ["normal_dispatch", "normal_combine"])
@pytest.mark.parametrize("name", Config.__slots__)
def test_each_size_of_a_config_is_a_whole_number_of_sensible_size(direction: str, name: str) -> None:
    def read(size: object) -> object:
        return configs_of(json.dumps({"normal_dispatch": {}, "normal_combine": {}, direction: {name: size}}))

    for size in (1, (1 << 20) - 1):
        assert read(size) is not None
    for size in (0, -1, 1 << 20, 2.0, True, "8", None):
        with pytest.raises(ConfigError, match="--deepep-config"):
            read(size)


@pytest.mark.parametrize(("tokens", "dispatched"), [(0, False), (1, True), (1024, True), (1025, False)])
def test_a_dispatch_is_of_one_token_to_1024(tokens: int, dispatched: bool) -> None:
    if dispatched:
        assert low_latency_bytes(tokens, 2048, 8) > 0
    else:
        with pytest.raises(ConfigError, match="at most 1024 tokens"):
            low_latency_bytes(tokens, 2048, 8)


def test_buffers_over_nvlink_are_in_whole_pages_of_the_driver() -> None:
    for ranks, hidden, nvlink, rdma in NORMAL:
        found = DeepEP("normal").buffers(ranks, hidden, 256)
        assert (found.nvlink, found.heap) == (-(-nvlink // (2 * MIB)) * 2 * MIB, heap_bytes(rdma))
    assert DeepEP().buffers(8, 7168, 256).workspace == 32 * MIB


def test_the_larger_of_both_directions_and_of_both_modes_counts() -> None:
    small, large = Config(num_max_rdma_chunked_recv_tokens=128), Config(20, 6, 512, 6, 512)
    for configs in ((small, large), (large, small)):
        found = DeepEP("normal", configs=configs).buffers(16, 7168, 256)
        assert found.nvlink == -(-large.nvlink_bytes(14336, 16) // (2 * MIB)) * 2 * MIB
        assert found.heap == heap_bytes(large.rdma_bytes(14336, 16))
    few, many = DeepEP(tokens=1).buffers(16, 7168, 8), DeepEP(tokens=1024).buffers(16, 7168, 256)
    assert few.heap == heap_bytes(91887744), "the normal mode's"
    assert many.heap == heap_bytes(low_latency_bytes(1024, 7168, 256))

"""The LM head's memory on meta tensors: the numbers of a deployment that ran out of it, and of a GPU."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from runtime.decoder.decoder import Decoder, sample_layers
from runtime.forward.batch import dummy_decode_batch
from runtime.forward.comm import VirtualCommunicator
from runtime.forward.dp_attention import plan_dp_tokens
from runtime.forward.kv_pool import KVPool, make_kv_pool
from runtime.forward.logits_processor import LogitsProcessor, autotune_dummy_run_mode
from runtime.layers.embedding import VocabTable
from runtime.server.config import ModelConfig
from runtime.server.parallel import HeadOver, ParallelConfig
from runtime.server.sizes.pool_plan import PoolPlan
from runtime.server.units import GIB, MIB
from runtime.simulate.allocation import Allocation
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.tracker import AllocationTracker
from tests.runtime.configs import runtime_config
from tests.runtime.starts import make_preset

META = torch.device("meta")


def _glm() -> ModelConfig:
    return make_preset("GLM-5.1-FP8")


def _track_head(
    parallel: ParallelConfig, rows: int, group: str = "tp", over: HeadOver = "all ranks"
) -> list[Allocation]:
    """Allocations of a decode's LM head on rank 0 of the GLM deployment, on meta tensors."""
    model, comm = _glm(), VirtualCommunicator(parallel)
    head = VocabTable("lm_head", model, comm, group, torch.bfloat16, META)
    processor = LogitsProcessor(model.vocabulary, comm, head, over=over)
    batch = dummy_decode_batch(rows, 1, META)
    batch = batch.with_dp(plan_dp_tokens(rows, "decode_graph", parallel, device=META))
    hidden = torch.empty(rows, model.hidden_size, dtype=torch.bfloat16, device=META)
    tracker = AllocationTracker(CachingAllocator(), "meta", log=True)
    with torch.inference_mode(), tracker:
        processor.forward(hidden, batch)
    assert tracker.log is not None
    return tracker.log


DP8 = ParallelConfig(tp=8, dp=8, enable_dp_attention=True)


@pytest.mark.parametrize(
    ("parallel", "rows", "head_rows", "size"),
    [
        (ParallelConfig(tp=8), 2048, 2048, "0.59 GiB"),
        (DP8, 2048, 16384, "4.73 GiB"),
        (DP8, 2764, 22112, "6.38 GiB"),
        (DP8, 24, 192, "57 MiB"),
    ],
)
def test_logits_of_dp_are_held_twice(parallel: ParallelConfig, rows: int, head_rows: int, size: str) -> None:
    vocab = _glm().vocabulary.size
    wide = [
        entry
        for entry in _track_head(parallel, rows)
        if entry.nbytes == head_rows * vocab * 2 and entry.nbytes != rows * vocab * 4
    ]
    assert [entry.op for entry in wide][:2] == ["new_empty", "clone"], "gathered, then copied into rows"
    value, unit = size.split()
    measured = wide[0].nbytes / {"GiB": GIB, "MiB": MIB}[unit]
    assert f"{measured:.{2 if unit == 'GiB' else 0}f}" == value


@pytest.mark.parametrize(
    ("group", "over", "rows"),
    [
        ("tp", "all ranks", [16384 // 8, 16384, 16384, 2048]),
        ("attn_tp", "a group", [2048]),
        ("attn_tp", "all ranks", [16384, 8 * 16384, 8 * 16384, 8 * 2048]),  # tied to the embedding
    ],
)
def test_logits_lie_as_often_as_their_head_is_shared(group: str, over: HeadOver, rows: list[int]) -> None:
    """Counted in rows of the whole vocabulary, before float32: srt/layers/logits_processor.py."""
    vocab = _glm().vocabulary.size
    logits = [entry for entry in _track_head(DP8, 2048, group, over) if entry.nbytes >= 2048 * vocab * 2]
    assert [entry.nbytes // (2 * vocab) for entry in logits[:-1]] == rows


@pytest.mark.parametrize("head_rows", [2048, 16384, 192])
def test_the_head_peaks_where_a_gpu_did(head_rows: int) -> None:
    """Shard, gathered buffer and copy as measured on one H200: 1.255, 10.044 and 0.118 GiB."""
    measured = {2048: 1.255, 16384: 10.044, 192: 0.118}[head_rows]
    log = _track_head(ParallelConfig(tp=8), head_rows)
    three = [entry.nbytes for entry in log if entry.op in ("mm", "new_empty", "clone")]
    assert sum(three) / GIB == pytest.approx(measured, abs=0.002)


def _make_glm(parallel: ParallelConfig, layers: Sequence[int]) -> tuple[Decoder, KVPool]:
    model, comm = _glm(), VirtualCommunicator(parallel)
    decoder = Decoder(model, runtime_config(moe_runner_backend="torch"), comm, META, layers)
    decoder.load_dummy()
    return decoder, make_kv_pool(PoolPlan(64, 1, "fp8_e4m3", 8, 32), model, parallel, layers, META)


@pytest.mark.parametrize("parallel", [ParallelConfig(tp=8), DP8])
def test_no_vocabulary_wide_tensor_exists_in_an_autotune_dummy_run(parallel: ParallelConfig) -> None:
    model = _glm()
    decoder, pool = _make_glm(parallel, sample_layers(model))
    batch = dummy_decode_batch(2048, 1, META)
    batch = batch.with_dp(plan_dp_tokens(2048, "decode_graph", parallel, device=META))

    def widths() -> set[int]:
        tracker = AllocationTracker(CachingAllocator(), "meta", log=True)
        with tracker:
            decoder(batch, pool)
        assert tracker.log is not None
        return {size for entry in tracker.log for size in entry.shape}

    vocabulary = {model.vocabulary.size, model.vocabulary.size // 8}
    with autotune_dummy_run_mode():
        assert not vocabulary & widths()
    assert vocabulary <= widths(), "and without the mode they do"


class _OpCount(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.ops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops += 1
        return func(*args, **(kwargs or {}))


def test_a_whole_rank_of_the_deployment_goes_through_in_few_ops() -> None:
    """A prediction's time grows with its ops: 78 layers, and a decode of 2764 rows on each of eight ranks."""
    decoder, pool = _make_glm(DP8, range(78))
    batch = dummy_decode_batch(2764, 1, META)
    batch = batch.with_dp(plan_dp_tokens(2764, "decode_graph", DP8, device=META))
    with _OpCount() as count:
        output = decoder(batch, pool)
    assert output.next_token_logits is not None and output.next_token_logits.shape == (2764, 154880)
    assert count.ops < 70 * 78


def test_token_counts_are_not_forgotten() -> None:
    decoder, pool = _make_glm(DP8, (0,))
    with pytest.raises(ValueError, match="needs its token counts"):
        decoder(dummy_decode_batch(8, 1, META), pool)

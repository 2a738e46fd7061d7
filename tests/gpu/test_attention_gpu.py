"""The Triton kernels on a GPU: against naive attention, for hidden memory and syncs, and in CUDA graphs."""

from collections.abc import Callable

import pytest
import torch

from runtime.forward.batch import ForwardBatch, ForwardMode, StaticBuffers
from runtime.forward.kv_packing import FP8
from runtime.forward.kv_pool import GqaPool, KVPool, LatentPool
from runtime.layers.attention import AttentionLayer, attend, attend_latent, select_tokens
from runtime.layers.attention.base import index_scores, store_rows
from runtime.layers.attention.reference import Paging
from runtime.server.layer_config import IndexerConfig
from tests.runtime.attention_cases import (
    CONTEXT,
    LAYER,
    LENGTHS,
    Grouped,
    Latent,
    Lengths,
    make_batches,
    make_pool,
    relative_error,
    run_grouped,
    run_latent,
)
from tests.runtime.batches import make_extend_batch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GPU = torch.device("cuda")
TOLERANCE = 1e-2
INDEXER = IndexerConfig(num_heads=32, head_dim=128, top_k=16)

GROUPED = {
    "Qwen3": Grouped(32, 4, 128),
    "Llama tp 8": Grouped(8, 1, 128),
    "gpt-oss": Grouped(64, 8, 64, sinks=True),
    "gpt-oss, sliding": Grouped(64, 8, 64, window=128, sinks=True, slots_apart=True),
    "a narrow window": Grouped(6, 2, 64, window=5),
    "a small head": Grouped(4, 4, 16),
}
LATENT = {"DeepSeek tp 8": Latent(16, 512, 64), "GLM dp 8": Latent(64, 512, 64), "small": Latent(4, 32, 8)}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("kind", GROUPED.values(), ids=GROUPED)
def test_grouped_queries_equal_the_reference(kind: Grouped, lengths: Lengths) -> None:
    torch.manual_seed(0)
    assert relative_error(*run_grouped(kind, lengths, torch.bfloat16, GPU)) < TOLERANCE


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("kind", LATENT.values(), ids=LATENT)
@pytest.mark.parametrize("keep", [None, 8], ids=["all", "selected"])
def test_latent_attention_equals_the_reference(kind: Latent, lengths: Lengths, keep: int | None) -> None:
    torch.manual_seed(0)
    assert relative_error(*run_latent(kind, lengths, torch.bfloat16, GPU, keep=keep)) < TOLERANCE


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_attention_over_fp8_pools_equals_the_reference(lengths: Lengths) -> None:
    torch.manual_seed(0)
    packed = Latent(64, 512, 64, INDEXER)
    assert relative_error(*run_grouped(GROUPED["Qwen3"], lengths, torch.bfloat16, GPU, FP8)) < TOLERANCE
    assert relative_error(*run_latent(LATENT["GLM dp 8"], lengths, torch.bfloat16, GPU, FP8)) < TOLERANCE
    for keep in (None, 16):
        assert relative_error(*run_latent(packed, lengths, torch.bfloat16, GPU, FP8, keep)) < TOLERANCE


@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, TOLERANCE), (torch.float32, 1e-5)])
def test_attention_in_fp16_and_fp32_equals_the_reference(dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    lengths = LENGTHS["behind prefixes"]
    assert relative_error(*run_grouped(GROUPED["gpt-oss"], lengths, dtype, GPU)) < tolerance
    assert relative_error(*run_latent(LATENT["GLM dp 8"], lengths, dtype, GPU)) < tolerance
    assert relative_error(*run_latent(LATENT["small"], lengths, dtype, GPU, keep=8)) < tolerance


def test_the_indexer_scores_as_on_the_cpu() -> None:
    torch.manual_seed(0)
    lengths, results = LENGTHS["behind prefixes"], []
    total = sum(lengths.new)
    q, weights = torch.randn(total, 32, 128).bfloat16(), torch.randn(total, 32)
    keys = torch.randn(1024 + 1, 128)
    for device in (torch.device("cpu"), GPU):
        pool = make_pool(Latent(2, 512, 64, INDEXER), torch.bfloat16, device)
        assert isinstance(pool.cache, LatentPool)
        store_rows(pool.cache.index_keys(LAYER), torch.arange(1025, device=device), keys.to(device))
        _, batch = make_batches(lengths, pool)
        rows = batch.req_pool_indices, batch.seq_lens, batch.query_starts
        paging = Paging(pool.table, *rows, batch.max_query_len)
        args = (q.to(device), pool.cache.index_keys(LAYER), weights.to(device), paging)
        results.append(index_scores(*args, batch.max_seq_len, 30, 70).cpu())
    here, there = results
    assert here.isinf().equal(there.isinf())
    assert relative_error(there.nan_to_num(neginf=0), here.nan_to_num(neginf=0).double()) < TOLERANCE


Forward = Callable[[ForwardBatch, KVPool], torch.Tensor]


def _grouped_forward(batch: ForwardBatch, pool: KVPool) -> torch.Tensor:
    assert isinstance(pool.cache, GqaPool)
    x = _values(batch, 8, 64)
    return attend(x, x[:, :2], -x[:, 2:4], AttentionLayer(LAYER, 0.1), batch, pool)


def _sparse_forward(batch: ForwardBatch, pool: KVPool) -> torch.Tensor:
    x = _values(batch, 16, 576)
    selected = select_tokens(
        x[:, :, :128].repeat(1, 2, 1), x[:, 0, :128], x[:, :, 0].float().repeat(1, 2), 16, LAYER, batch, pool
    )
    return attend_latent(x, x[:, 0], 512, AttentionLayer(LAYER, 0.1), batch, pool, selected)


def _values(batch: ForwardBatch, heads: int, width: int) -> torch.Tensor:
    """Return values that depend only on each token's id and position."""
    seed = (batch.input_ids * 7 + batch.positions).float()[:, None, None]
    numbers = torch.arange(heads * width, device=seed.device).view(heads, width)
    return torch.sin(seed + numbers).bfloat16()


FORWARDS: dict[str, tuple[Forward, Grouped | Latent]] = {
    "grouped": (_grouped_forward, Grouped(8, 2, 64)),
    "sparse": (_sparse_forward, Latent(16, 512, 64, INDEXER)),
}


@pytest.mark.parametrize("name", FORWARDS)
@pytest.mark.parametrize("mode, width", [
    (ForwardMode.DECODE, 1), (ForwardMode.TARGET_VERIFY, 3), (ForwardMode.EXTEND, None),
])  # fmt: skip
def test_a_captured_graph_serves_other_lengths(name: str, mode: ForwardMode, width: int | None) -> None:
    forward, kind = FORWARDS[name]
    pool = make_pool(kind, torch.bfloat16, GPU)
    buffers = StaticBuffers(8, 24, CONTEXT, GPU)
    batches = [_make_batch(forward, pool, mode, width, prefixes) for prefixes in ((3, 9), (60, 0, 33), (1,))]
    graph, padded = torch.cuda.CUDAGraph(), (8, 24 if width is None else 8 * width)
    static = buffers.fill(batches[0], *padded, width or 0)
    for _ in range(2):
        forward(static, pool)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        result = forward(static, pool)
    for batch in batches[::-1]:
        buffers.fill(batch, *padded, width or 0)
        graph.replay()
        replayed = result[: batch.num_tokens].clone()
        assert relative_error(replayed, forward(batch, pool).double().cpu()) < TOLERANCE
        assert result.isfinite().all()


def _make_batch(
    forward: Forward, pool: KVPool, mode: ForwardMode, width: int | None, prefixes: tuple[int, ...]
) -> ForwardBatch:
    requests = range(1, len(prefixes) + 1)
    new = [[request] * (width or 2 * i + 1) for i, request in enumerate(requests)]
    before = [[request] * prefix for request, prefix in zip(requests, prefixes, strict=True)]
    forward(make_extend_batch(before, requests, pool), pool)
    return make_extend_batch(new, requests, pool, prefixes, mode)


@pytest.mark.parametrize("lengths", [LENGTHS["decode"], LENGTHS["behind prefixes"]], ids=["decode", "extend"])
def test_a_forward_never_waits(lengths: Lengths) -> None:
    pool = make_pool(Grouped(8, 2, 64), torch.bfloat16, GPU)
    _, batch = make_batches(lengths, pool)
    q = torch.randn(batch.num_tokens, 8, 64, device=GPU).bfloat16()
    args = (q, q[:, :2], q[:, 2:4], AttentionLayer(LAYER, 0.1), batch, pool)
    attend(*args)
    torch.cuda.set_sync_debug_mode("error")
    try:
        attend(*args)
    finally:
        torch.cuda.set_sync_debug_mode("default")

"""The CPU's attention against a naive one, the choice of sparse attention, and what meta makes of both."""

from dataclasses import replace

import pytest
import torch

from runtime.forward.kv_packing import FP8
from runtime.layers.attention import AttentionLayer, attend, attend_latent, base, reference, select_tokens
from runtime.server.layer_config import IndexerConfig
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.tracker import AllocationTracker
from tests.runtime.attention_cases import (
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

CPU, META = torch.device("cpu"), torch.device("meta")
INDEXER = IndexerConfig(num_heads=3, head_dim=16, top_k=8)

GROUPED = {
    "one group": Grouped(4, 4, 64),
    "eight to a kv head": Grouped(16, 2, 128),
    "window": Grouped(6, 2, 32, window=16),
    "window, slots apart": Grouped(4, 2, 32, window=16, slots_apart=True),
    "sinks": Grouped(4, 2, 64, sinks=True),
    "window and sinks": Grouped(8, 1, 64, window=5, sinks=True),
}
LATENT = {"latent": Latent(4, 64, 16), "wide latent": Latent(2, 512, 64)}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("kind", GROUPED.values(), ids=GROUPED)
def test_grouped_queries_equal_the_reference(kind: Grouped, lengths: Lengths) -> None:
    torch.manual_seed(0)
    assert relative_error(*run_grouped(kind, lengths, torch.float32, CPU)) < 1e-6


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("kind", LATENT.values(), ids=LATENT)
@pytest.mark.parametrize("keep", [None, 8], ids=["all", "selected"])
def test_latent_attention_equals_the_reference(kind: Latent, lengths: Lengths, keep: int | None) -> None:
    torch.manual_seed(0)
    assert relative_error(*run_latent(kind, lengths, torch.float32, CPU, keep=keep)) < 1e-6


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, FP8])
@pytest.mark.parametrize("lengths", [LENGTHS["prefill"], LENGTHS["behind prefixes"]], ids=["new", "old"])
def test_a_narrower_pool_is_read_as_it_was_stored(kv_dtype: torch.dtype, lengths: Lengths) -> None:
    torch.manual_seed(0)
    latent = Latent(4, 64, 16)
    packed = Latent(4, 256, 16, INDEXER)
    assert relative_error(*run_grouped(GROUPED["sinks"], lengths, torch.float32, CPU, kv_dtype)) < 1e-6
    assert relative_error(*run_latent(latent, lengths, torch.float32, CPU, kv_dtype)) < 1e-6
    assert relative_error(*run_latent(packed, lengths, torch.float32, CPU, kv_dtype, keep=8)) < 1e-6


def test_values_beyond_fp8_saturate() -> None:
    pool = make_pool(GROUPED["one group"], FP8, CPU)
    batch = make_extend_batch([[0]], [1], pool)
    huge = torch.full((1, 4, 64), 1e4)
    out = attend(torch.zeros(1, 4, 64), huge, -huge, AttentionLayer(LAYER, 1.0), batch, pool)
    assert out.eq(-448).all()


def test_a_long_prefill_is_the_same_in_blocks_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "QUERY_BLOCK", 7)
    torch.manual_seed(0)
    lengths = LENGTHS["behind prefixes"]
    assert relative_error(*run_grouped(GROUPED["window"], lengths, torch.float32, CPU)) < 1e-6
    assert relative_error(*run_latent(LATENT["latent"], lengths, torch.float32, CPU, keep=8)) < 1e-6


@pytest.mark.parametrize("score_bytes", [512 << 20, 5000], ids=["at once", "in parts"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_indexer_selects_the_highest_scores(
    dtype: torch.dtype, score_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "SCORE_BYTES", score_bytes)
    torch.manual_seed(0)
    lengths = LENGTHS["behind prefixes"]
    pool = make_pool(Latent(2, 64, 16, INDEXER), dtype, CPU)
    keys = [torch.randn(prefix + new, 16) for prefix, new in zip(lengths.prefixes, lengths.new, strict=True)]
    before, batch = make_batches(lengths, pool)
    for part, sides in ((before, "prefix"), (batch, "new")):
        cut = [k[:p] if sides == "prefix" else k[p:] for k, p in zip(keys, lengths.prefixes, strict=True)]
        q, weights = torch.randn(part.num_tokens, 3, 16), torch.randn(part.num_tokens, 3)
        selected = select_tokens(q, torch.cat(cut), weights, INDEXER.top_k, LAYER, part, pool)
    assert selected is not None and selected.dtype is torch.int32
    row = pool.cache.index_row
    stored = [row.unpack(row.pack(k)) if row else k for k in keys]
    token = 0
    for k, prefix, new in zip(stored, lengths.prefixes, lengths.new, strict=True):
        for position in range(prefix, prefix + new):
            scores = torch.relu(q[token] @ k[: position + 1].T).T @ weights[token]
            chosen = selected[token][selected[token] >= 0].long()
            # equal scores may be chosen either way
            best = scores.topk(min(INDEXER.top_k, position + 1)).values
            assert len(set(chosen.tolist())) == len(best)
            torch.testing.assert_close(scores[chosen].sort(descending=True).values, best)
            token += 1


def test_short_requests_have_no_choice_to_make_but_keep_their_keys() -> None:
    pool = make_pool(Latent(2, 64, 16, INDEXER), torch.float32, CPU)
    batch = make_extend_batch([[0] * 8], [1], pool)
    keys = torch.randn(8, 16)
    args = torch.randn(8, 3, 16), keys, torch.randn(8, 3)
    assert select_tokens(*args, INDEXER.top_k, LAYER, batch, pool) is None
    assert pool.cache.index_keys(LAYER)[batch.out_cache_loc].equal(keys)


def test_tokens_of_no_request_come_out_as_zeros() -> None:
    pool = make_pool(GROUPED["one group"], torch.float32, CPU)
    batch = make_extend_batch([[0] * 3], [1], pool)
    padded = replace(batch, out_cache_loc=torch.cat([batch.out_cache_loc, torch.zeros(5, dtype=torch.int64)]))
    x = torch.randn(8, 4, 64)
    out = attend(x, x, x, AttentionLayer(LAYER, 1.0), padded, pool)
    assert out[3:].eq(0).all() and out[:3].ne(0).all()


def _forward(kind: Grouped | Latent, device: torch.device) -> tuple[list[torch.Size], list[tuple[str, int]]]:
    """The results' shapes, and what was allocated."""
    lengths = LENGTHS["behind prefixes"]
    pool = make_pool(kind, torch.bfloat16, device)
    _, batch = make_batches(lengths, pool)
    tracker = AllocationTracker(CachingAllocator(), device.type, log=True)
    rows, layer = batch.num_tokens, AttentionLayer(LAYER, 1.0)
    options = {"dtype": torch.bfloat16, "device": device}
    if isinstance(kind, Grouped):
        q, k = torch.zeros(rows, kind.heads, 64, **options), torch.zeros(rows, kind.kv_heads, 64, **options)
        with tracker:
            results = [attend(q, k, k, layer, batch, pool)]
    else:
        q, k = torch.zeros(rows, kind.heads, 80, **options), torch.zeros(rows, 80, **options)
        index_q, index_k = torch.zeros(rows, 3, 16, **options), torch.zeros(rows, 16, **options)
        weights = torch.zeros(rows, 3, device=device)
        with tracker:
            selected = select_tokens(index_q, index_k, weights, 8, LAYER, batch, pool)
            results = [attend_latent(q, k, 64, layer, batch, pool, selected), selected]
    log = [(one.op, one.nbytes) for one in tracker.log or ()]
    return [result.shape for result in results], log


ALLOCATING = {"grouped": Grouped(4, 2, 64), "sparse": Latent(4, 64, 16, INDEXER)}


@pytest.mark.parametrize("kind", ALLOCATING.values(), ids=ALLOCATING)
def test_meta_allocates_what_the_cpu_allocates(kind: Grouped | Latent) -> None:
    shapes, log = _forward(kind, CPU)
    assert (shapes, log) == _forward(kind, META)
    kernel = "paged" if isinstance(kind, Grouped) else "latent"
    tokens, width = sum(LENGTHS["behind prefixes"].new), 64
    assert (f"{kernel}_attention", tokens * 4 * width * 2) in log
    if isinstance(kind, Latent):
        assert ("index_scores", tokens * 91 * 4) in log
    else:
        assert len(log) == 1

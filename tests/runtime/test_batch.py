"""Batches: dummies touch nothing but padding, and padding changes no answer."""

import pytest
import torch

from runtime.forward.batch import (
    ForwardBatch,
    ForwardMode,
    LogitsMode,
    StaticBuffers,
    dummy_decode_batch,
    dummy_extend_batch,
)
from runtime.forward.kv_pool import PADDING_SLOT, KVPool
from runtime.layers.attention import AttentionLayer, attend
from tests.runtime.attention_cases import LAYER, Grouped, make_pool
from tests.runtime.batches import make_extend_batch

CPU, META = torch.device("cpu"), torch.device("meta")
KIND = Grouped(4, 2, 16)
TENSORS = ("input_ids", "positions", "out_cache_loc", "req_pool_indices", "seq_lens", "query_starts")


def _make_pool() -> KVPool:
    return make_pool(KIND, torch.float32, CPU)


def _attend(batch: ForwardBatch, pool: KVPool) -> torch.Tensor:
    """Each token's q, k and v follow from its id and position."""
    seed = (batch.input_ids * 31 + batch.positions).double()
    q, k, v = (
        torch.sin(seed[:, None, None] * scale + torch.arange(heads * 16).view(heads, 16)).float()
        for heads, scale in ((KIND.heads, 1.3), (KIND.kv_heads, 0.7), (KIND.kv_heads, 2.1))
    )
    return attend(q, k, v, AttentionLayer(LAYER, 1.0), batch, pool)


@pytest.mark.parametrize("width, mode, logits", [
    (1, ForwardMode.DECODE, LogitsMode.LAST), (4, ForwardMode.TARGET_VERIFY, LogitsMode.ALL),
])  # fmt: skip
def test_a_dummy_decode_batch_touches_the_padding_slot_alone(width, mode, logits) -> None:
    pool = _make_pool()
    batch = dummy_decode_batch(3, width, CPU)
    assert (batch.mode, batch.logits_mode) == (mode, logits)
    assert (batch.num_tokens, batch.num_requests) == (3 * width, 3)
    assert batch.positions.tolist() == [*range(width)] * 3
    assert _attend(batch, pool).isfinite().all()
    written = pool.cache.keys(LAYER).flatten(1).ne(0).any(1).nonzero().flatten()
    assert written.tolist() == [PADDING_SLOT]


def test_a_dummy_prefill_longer_than_the_context_is_several_requests() -> None:
    batch = dummy_extend_batch(10, 4, CPU)
    assert batch.query_starts.tolist() == [0, 4, 8, 10]
    assert batch.positions.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert (batch.max_query_len, batch.max_seq_len) == (4, 4)


def _cases() -> dict[str, tuple[list[list[int]], ForwardMode, int, int]]:
    """New tokens behind a prefix of 3, mode, padded requests and tokens."""
    return {
        "decode": ([[4], [6]], ForwardMode.DECODE, 5, 5),
        "decode, full": ([[4], [6]], ForwardMode.DECODE, 2, 2),
        "verify": ([[4, 5, 6], [6, 7, 8]], ForwardMode.TARGET_VERIFY, 4, 12),
        "prefill": ([[4, 5, 6, 7], [6]], ForwardMode.EXTEND, 4, 16),
    }


@pytest.mark.parametrize("case", _cases())
def test_padding_changes_no_answer(case: str) -> None:
    tokens, mode, padded_requests, padded_tokens = _cases()[case]
    buffers = StaticBuffers(8, 16, 64, CPU)
    buffers.fill(dummy_extend_batch(16, 2, CPU), 8, 16)  # leftovers of a larger batch
    addresses = {name: getattr(buffers, name).data_ptr() for name in TENSORS}
    pool = _make_pool()
    requests = range(1, len(tokens) + 1)
    _attend(make_extend_batch([[1, 2, 3]] * len(tokens), requests, pool), pool)
    batch = make_extend_batch(tokens, requests, pool, [3] * len(tokens), mode)
    width = 0 if mode is ForwardMode.EXTEND else len(tokens[0])
    padded = buffers.fill(batch, padded_requests, padded_tokens, width)

    expected, result = _attend(batch, pool), _attend(padded, pool)
    torch.testing.assert_close(result[: batch.num_tokens], expected)
    assert result.isfinite().all()
    assert (padded.num_requests, padded.num_tokens) == (padded_requests, padded_tokens)
    assert padded.query_starts.shape == (padded_requests + 1,)
    assert padded.max_query_len >= batch.max_query_len and padded.max_seq_len == 64
    assert {name: getattr(padded, name).data_ptr() for name in TENSORS} == addresses
    assert padded.out_cache_loc[batch.num_tokens :].eq(PADDING_SLOT).all()


def test_batches_are_made_alike_on_meta() -> None:
    for here, there in (
        (dummy_decode_batch(3, 2, CPU), dummy_decode_batch(3, 2, META)),
        (dummy_extend_batch(10, 4, CPU), dummy_extend_batch(10, 4, META)),
    ):
        filled = [StaticBuffers(4, 16, 64, d).fill(b, 4, 16) for d, b in ((CPU, here), (META, there))]
        for one, other in ((here, there), filled):
            shapes = [[getattr(batch, name).shape for name in TENSORS] for batch in (one, other)]
            assert shapes[0] == shapes[1]

"""What a token takes in the KV pool: bytes that SGLang's pools allocate, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.server.config import ModelConfig
from runtime.server.layer_config import AttentionConfig, IndexerConfig, MLAConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.sizing import (
    kv_bytes_per_token,
    kv_bytes_per_token_and_layer,
    kv_tokens,
    packed_fp8_bytes,
    static_rest,
)
from tests.server.servers import QWEN, server

GIB = 1 << 30


def _latent(indexer: IndexerConfig | None) -> ModelConfig:
    mla = MLAConfig(1536, 512, 128, 64, 128, indexer)
    return ModelConfig("deepseek_v3", 7168, 61, 18432, 129280, 163840, mla=mla)


@pytest.mark.parametrize(
    ("quantized", "plain", "size"),
    [(512, 64, 512 + 4 * 4 + 2 * 64), (128, 0, 128 + 4), (64, 0, 64 + 4), (256, 1, 256 + 2 * 4 + 2)],
)
def test_fp8_rows_carry_a_scale_a_block(quantized: int, plain: int, size: int) -> None:
    assert packed_fp8_bytes(quantized, plain) == size


@pytest.mark.parametrize(
    ("dtype", "packed", "size"),
    [
        ("bfloat16", True, 576 * 2 + 132),
        ("fp8_e4m3", True, 656 + 132),
        ("fp8_e4m3", False, 576 + 132),
        ("float32", True, 576 * 4 + 4 * 128),
    ],
)
def test_latent_rows_with_an_indexers_keys(dtype: str, packed: bool, size: int) -> None:
    sparse = _latent(IndexerConfig(64, 128, 2048))
    assert kv_bytes_per_token_and_layer(sparse, ParallelConfig(), dtype, packed) == size


def test_latent_rows_alone_are_never_packed() -> None:
    dense = _latent(None)
    assert kv_bytes_per_token_and_layer(dense, ParallelConfig(tp=8), "fp8_e4m3") == 576
    assert kv_bytes_per_token_and_layer(dense, ParallelConfig(), "bfloat16") == 1152


def test_the_pool_is_what_the_static_share_leaves_in_whole_pages() -> None:
    rest = static_rest(50 * GIB, 100 * GIB, 0.75)
    assert kv_tokens(rest, 1 << 20, 1) == 25 * 1024
    assert kv_tokens(rest, (1 << 20) + 1, 64) == 25536
    assert kv_tokens(static_rest(10 * GIB, 100 * GIB, 0.5), 1 << 20, 1) == 0


def _layers(*kinds: str) -> ModelConfig:
    one = AttentionConfig(8, 4, 64, None, 1.0)
    attention = {"full": one, "sliding": replace(one, window=128)}
    return ModelConfig(
        "gpt_oss", 512, len(kinds), 512, 1000, 4096, attention=attention, attention_kinds=kinds
    )


def test_a_draft_adds_its_layers_to_a_stage() -> None:
    each = 2 * 4 * 64 * 2
    assert kv_bytes_per_token(_layers(*["full"] * 4), ParallelConfig(), "bfloat16", range(4)) == 4 * each
    assert kv_bytes_per_token(_layers(*["full"] * 4), ParallelConfig(), "bfloat16", range(4), 1) == 5 * each
    assert kv_bytes_per_token(_layers(*["full"] * 4), ParallelConfig(), "bfloat16", range(2), 2) == 4 * each


def test_layers_with_a_window_keep_a_share_of_the_tokens() -> None:
    each, mixed = 2 * 4 * 64 * 2, _layers("full", "sliding", "sliding", "full")
    assert kv_bytes_per_token(mixed, ParallelConfig(), "bfloat16", range(4)) == 2 * each + 0.8 * 2 * each
    assert kv_bytes_per_token(mixed, ParallelConfig(), "bfloat16", range(2), 1) == 2 * each + 0.8 * each
    windows = kv_bytes_per_token(mixed, ParallelConfig(), "bfloat16", [1, 2])
    assert windows == 2 * each, "a stage of windows alone has one pool"


def test_the_share_of_layers_behind_a_window_is_the_servers_flag() -> None:
    asked = [server(QWEN, swa_full_tokens_ratio=share).runtime.sliding_share for share in (None, 0.25, 1.0)]
    assert asked == [0.8, 0.25, 1.0]

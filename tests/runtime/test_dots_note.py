"""dots.note's pools of latents, and what its tower keeps a second time."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from runtime.forward.kv_pool import LatentPool, make_kv_pool
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import plan_tokens
from runtime.server.sizing import kv_bytes_per_token
from tests.memory.checkpoints import DATA

PUBLISHED = json.loads((DATA / "published_families.json").read_text())
PLAIN, SPARSE = (
    PUBLISHED[f"a/dots-note-{one}"] for one in ("of-the-sizes-that-sglang-takes", "with-an-indexer")
)
META = torch.device("meta")


def _tower(told: dict[str, Any]) -> int:
    encoder = model_config(told).encoder
    assert encoder is not None
    sizes = ((torch.Size(one.shape).numel() * one.layers, one) for one in encoder.weights)
    return sum(count * (4 if one.in_fp32 else 1 if one.in_fp8 else 2) for count, one in sizes)


def test_layers_behind_windows_keep_their_own_latents_in_a_pool_of_their_own() -> None:
    """HybridSWAPoolConfigurator: 2 full layers of 10, with an indexer's keys; a window's rank is 256."""
    model, one, share = model_config(SPARSE), ParallelConfig(), 0.8
    found = kv_bytes_per_token(model, one, "bfloat16", range(10), share=share)
    assert found == 2 * (2 * 576 + 132) + share * 8 * 2 * (256 + 64)
    runtime = RuntimeConfig(page_size=64, sliding_share=share, context_length=4096)
    plan = plan_tokens(64 * 100, model, one, runtime)
    assert plan.page_size == 64 and plan.sliding_tokens == 64 * 80
    cache = make_kv_pool(plan, model, one, range(10), META).cache
    assert isinstance(cache, LatentPool)
    assert cache.latents(0).shape == (64 * 81, 1, 320) and cache.latents(4).shape == (64 * 101, 1, 576)
    assert cache.index_keys(4).shape == (64 * 101, 132)


def test_a_stage_of_windows_alone_counts_their_latents() -> None:
    model = model_config(SPARSE)
    assert kv_bytes_per_token(model, ParallelConfig(), "bfloat16", range(4)) == 4 * 2 * (256 + 64)


def test_experts_of_the_tower_are_there_in_fp8_too() -> None:
    """MoESwiGLUFFNFP8: blocks of 128, the last of a matrix filled up, a scale each in float32."""
    blocks, experts = 17, 11 * 4 + 10 * 8
    tower = {**SPARSE["vision_config"], "enable_fp8_moe": True}
    more = _tower({**SPARSE, "vision_config": tower}) - _tower(SPARSE)
    assert more == experts * 3 * blocks * 8 * (128 * 128 + 4)


@pytest.mark.parametrize(
    ("section", "told", "said"),
    [
        ("vision_config", {"adapter_type": "mean"}, "adapter_type is 'mean'"),
        ("vision_config", {"num_attention_heads": 7}, "num_attention_heads 7 do not divide"),
        ("vision_config", {"pyramid_num_routed": 4}, "a list of whole numbers"),
        ("audio_config", {"encoder_type": "whisper"}, "encoder_type is 'whisper'"),
        ("audio_config", {"use_latent_input": True}, "use_latent_input beside use_conv2d_stem"),
    ],
)
def test_towers_that_sglang_has_not_are_refused(section: str, told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**PLAIN, section: {**PLAIN[section], **told}})


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"layer_types": None}, "layer_types is missing"),
        ({"swa_num_key_value_heads": 8}, "swa_num_key_value_heads"),
        ({"attention_gate_type": "tokenwise"}, "attention_gate_type is 'tokenwise'"),
        ({"index_topk": 2048}, "index_n_heads"),
    ],
)
def test_layers_that_sglang_has_not_are_refused(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**PLAIN, **told})

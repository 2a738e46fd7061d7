"""KV pool sizes: equal to a start of a stock SGLang, and consistent with the buffers that are then made."""

from dataclasses import replace

import pytest
import torch

from runtime.forward.kv_pool import KVPool, LatentPool, make_kv_pool
from runtime.server.config import RuntimeConfig, SpeculativeConfig
from runtime.server.errors import ConfigError
from runtime.server.layer_config import Mamba2Config
from runtime.server.parallel import ParallelConfig
from runtime.server.sizes.pool_plan import FreeMemory, PoolPlan, plan_pool
from runtime.server.sizes.sizing import kv_bytes_per_token_and_layer
from runtime.server.units import GIB, MIB
from tests.runtime.configs import runtime_config
from tests.runtime.starts import make_preset

META = torch.device("meta")

# Qwen3-30B-A3B under a stock SGLang 0.5.17 with --mem-fraction-static 0.85, measured on one H200.
TOKENS, REQUESTS = 669939, 4096
FREE_BEFORE_LOAD, FREE_AFTER_LOAD = 149364539392, 88255627264
RESERVED_BEFORE_POOLS, RESERVED_AFTER_POOLS = 61131980800, 127819317248
ALLOCATED_BEFORE_POOLS, ALLOCATED_AFTER_POOLS = 61092812288, 127627275264
# SGLang empties torch's cache before it reads what is free; how much that gave back is proven below.
CACHE_GIVEN_BACK = 20 * MIB
# Its baseline is read as soon as the process groups are up, earlier than FREE_BEFORE_LOAD. Nobody recorded
# it: this is the one multiple of 2 MiB that gives the measured tokens.
USED_SINCE_BASELINE = 90 * MIB
MEASURED = FreeMemory(FREE_BEFORE_LOAD + USED_SINCE_BASELINE, FREE_AFTER_LOAD + CACHE_GIVEN_BACK)
# Two pointer tables of 48 entries and two of 96, rounded to 512 bytes: SGLang's own, for moving KV around.
POINTER_TABLES = 512 + 512 + 1024 + 1024


def _plan(name: str, free: FreeMemory = MEASURED, fraction: float = 0.85, **fields: object) -> PoolPlan:
    model = make_preset(name)
    layers = range(model.num_layers)
    options = {"parallel": ParallelConfig(), "runtime": RuntimeConfig(), "layers": layers, **fields}
    return plan_pool(free, fraction, model, **options)


def _buffers(pool: KVPool) -> list[torch.Tensor]:
    cache = pool.cache
    is_latent = isinstance(cache, LatentPool)
    pairs = (cache._latents, cache._index_keys) if is_latent else (cache._keys, cache._values)
    return [buffer for layers in pairs for buffer in layers.values()]


def _rounded(nbytes: int, to: int) -> int:
    return -(-nbytes // to) * to


def test_a_stock_start_has_exactly_these_tokens_and_requests():
    plan = _plan("Qwen3-30B-A3B")
    assert (plan.tokens, plan.max_running_requests) == (TOKENS, REQUESTS)


def test_pools_of_a_stock_start_take_exactly_the_measured_memory():
    model, plan = make_preset("Qwen3-30B-A3B"), _plan("Qwen3-30B-A3B")
    pool = make_kv_pool(plan, model, ParallelConfig(), range(model.num_layers), META)
    tensors = [pool.table, pool.free, *_buffers(pool)]
    made = sum(_rounded(tensor.nbytes, 512) for tensor in tensors)
    assert made == ALLOCATED_AFTER_POOLS - ALLOCATED_BEFORE_POOLS - POINTER_TABLES


def test_the_reserved_memory_shows_what_the_cache_gave_back():
    model, plan = make_preset("Qwen3-30B-A3B"), _plan("Qwen3-30B-A3B")
    pool = make_kv_pool(plan, model, ParallelConfig(), range(model.num_layers), META)
    # The free slots (5 MiB) found a hole beside the weights; all else took segments of its own.
    segments = sum(_rounded(tensor.nbytes, 2 * MIB) for tensor in [pool.table, *_buffers(pool)])
    assert segments - (RESERVED_AFTER_POOLS - RESERVED_BEFORE_POOLS) == CACHE_GIVEN_BACK


@pytest.mark.parametrize(
    "name, kv_dtype, parallel",
    [
        ("Qwen3-30B-A3B", "auto", ParallelConfig(tp=4)),
        ("Qwen3-30B-A3B", "fp8_e4m3", ParallelConfig(tp=8, dp=4, enable_dp_attention=True)),
        ("Qwen3-30B-A3B", "bfloat16", ParallelConfig(tp=8)),
        ("Llama-3.1-8B", "float32", ParallelConfig()),
        ("DeepSeek-V3", "auto", ParallelConfig(tp=8)),
        ("DeepSeek-V3", "fp8_e4m3", ParallelConfig(tp=8)),
        ("DeepSeek-V3.2", "auto", ParallelConfig(tp=8)),
        ("GLM-5.1-FP8", "fp8_e4m3", ParallelConfig(tp=8, dp=8, enable_dp_attention=True)),
        ("GLM-5.1-FP8", "float32", ParallelConfig(tp=8)),
    ],
)
def test_the_buffers_take_what_the_plan_counted(name, kv_dtype, parallel):
    model, runtime = make_preset(name), runtime_config(kv_cache_dtype=kv_dtype)
    plan = _plan(name, parallel=parallel, runtime=runtime)
    pool = make_kv_pool(plan, model, parallel, range(3), META)
    per_token = kv_bytes_per_token_and_layer(model, parallel, plan.kv_dtype)
    assert sum(buffer.nbytes for buffer in _buffers(pool)) == 3 * per_token * (plan.tokens + plan.page_size)
    assert pool.table.shape == (plan.max_running_requests + 1, plan.row_length)
    assert len(pool.free) == plan.tokens


def test_glm_on_blackwell_keeps_fp8_latents_and_its_requests_follow_from_them():
    parallel = ParallelConfig(tp=8, dp=8, enable_dp_attention=True)
    free = FreeMemory(int(174.2 * GIB), int(174.2 * GIB - 98.6 * GIB))
    runtime = runtime_config(kv_cache_dtype="fp8_e4m3", packs_latents=False)
    plan = _plan("GLM-5.1-FP8", free, 0.9, parallel=parallel, runtime=runtime)
    assert plan.kv_dtype == "fp8_e4m3" and plan.page_size == 64 and plan.tokens % 64 == 0
    per_token = kv_bytes_per_token_and_layer(make_preset("GLM-5.1-FP8"), parallel, plan.kv_dtype, plan.packed)
    assert per_token == 576 + 132  # TRT-LLM's kernels read plain fp8 latents
    assert plan.max_running_requests == int(plan.tokens / 202752 * 512) > 2048


def test_sliding_layers_of_gpt_oss_keep_four_fifths_of_the_tokens() -> None:
    model, plan = make_preset("gpt-oss-120b"), _plan("gpt-oss-120b")
    each = kv_bytes_per_token_and_layer(model, ParallelConfig(), "bfloat16")
    assert plan.sliding_tokens == int(plan.tokens * 0.8)
    budget = MEASURED.after_load - MEASURED.baseline * (1 - 0.85)
    spent = each * 18 * (plan.tokens + plan.sliding_tokens)
    assert budget - each * 36 < spent <= budget
    pool = make_kv_pool(plan, model, ParallelConfig(), range(36), META)
    assert [pool.cache.keys(layer).shape[0] for layer in (0, 1)] == [plan.sliding_tokens + 1, plan.tokens + 1]
    assert _plan("Qwen3-30B-A3B").sliding_tokens == 0
    paged = _plan("gpt-oss-120b", runtime=runtime_config(page_size=64))
    four_fifths = int(paged.tokens * 0.8)
    assert paged.sliding_tokens % 64 == 0 and 0 <= four_fifths - paged.sliding_tokens < 64


def test_what_layers_behind_windows_keep_is_what_is_asked() -> None:
    """HybridSWAPoolConfigurator computes this in every release."""
    each, budget = 2 * 8 * 64 * 2, MEASURED.after_load - MEASURED.baseline * (1 - 0.85)
    for share in (0.1, 0.5, 1.0):
        plan = _plan("gpt-oss-120b", runtime=runtime_config(sliding_share=share))
        assert plan.tokens == int(budget // (18 * each + share * (18 * each)))
        assert plan.sliding_tokens == int(plan.tokens * share)


def test_asked_requests_are_split_over_attention_dp_ranks():
    parallel = ParallelConfig(tp=8, dp=8, enable_dp_attention=True)
    speculative = runtime_config(speculative=SpeculativeConfig(), max_running_requests=48)
    assert _plan("GLM-5.1-FP8", parallel=parallel, runtime=speculative).max_running_requests == 6
    asked = replace(speculative, max_running_requests=1000)
    assert _plan("GLM-5.1-FP8", parallel=parallel, runtime=asked).max_running_requests == 125


def test_a_draft_shares_the_budget_and_stages_agree_on_the_fewest_tokens():
    alone, shared = _plan("Llama-3.1-8B"), _plan("Llama-3.1-8B", draft_layers=1)
    assert shared.tokens == pytest.approx(alone.tokens * 32 / 33, abs=1)
    assert _plan("Llama-3.1-8B", layers=range(16), agree=lambda tokens: min(tokens, 1000)).tokens == 1000


def test_no_room_for_the_pool_names_the_fraction_that_would_do():
    with pytest.raises(ConfigError, match=r"--mem-fraction-static 0\.5 .* take 0\.801 .* raise it above"):
        _plan("Qwen3-30B-A3B", FreeMemory(100 * GIB, int(19.95 * GIB)), 0.5)


def test_an_unknown_kv_dtype_is_refused():
    with pytest.raises(ConfigError, match=r"--kv-cache-dtype nvfp4: .*fp8_e4m3"):
        _plan("Qwen3-30B-A3B", runtime=runtime_config(kv_cache_dtype="nvfp4"))


def test_a_stage_without_attention_has_as_many_tokens_as_another_could_have():
    kinds = {"attention_kinds": ("recurrent",) * 4 + ("full",) * 4, "layer_kinds": ("moe",) * 8}
    mamba = Mamba2Config(16, 64, 8, 128, 4, True, False, 0.0)
    model = replace(make_preset("Qwen3-30B-A3B"), **kinds, recurrent=mamba)
    two, runtime = ParallelConfig(pp=2), runtime_config()
    free = FreeMemory(100 * GIB, 80 * GIB)
    plans = [plan_pool(free, 0.8, model, two, runtime, layers) for layers in (range(4), range(4, 8))]
    assert plans[0].tokens == plans[1].tokens < 1 << 30
    assert plans[0].states == plans[1].states
    agreed = plan_pool(free, 0.8, model, two, runtime, range(4), agree=lambda tokens: min(tokens, 1000))
    assert agreed.tokens == 1000


@pytest.mark.parametrize(("most", "tokens"), [(100_000, 100_000), (100_001, 100_001), (10**9, TOKENS)])
def test_a_pool_holds_no_more_than_was_asked(most, tokens):
    plan = _plan("Qwen3-30B-A3B", runtime=runtime_config(max_total_tokens=most))
    assert plan.tokens == tokens and plan.max_running_requests == (REQUESTS if most == 10**9 else 2048)

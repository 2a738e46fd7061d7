"""KV pool sizes: equal to a start of a stock SGLang, and consistent with the buffers that are then made."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from runtime.forward.kv_pool import GqaPool, IndexedPool, KVPool, LatentPool, make_kv_pool
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import FreeMemory, PoolPlan, kv_dtype_of, plan_pool, table_headroom
from runtime.server.recurrent import Mamba2Config
from runtime.server.sizing import kv_bytes_per_token, kv_bytes_per_token_and_layer
from runtime.server.speculative_config import SpeculativeConfig
from runtime.server.units import GIB, MIB
from tests.memory.checkpoints import DATA

PRESETS = Path(__file__).parents[2] / "sgl_tune" / "presets" / "models"
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


def _preset(name: str) -> ModelConfig:
    return model_config(json.loads((PRESETS / f"{name}.json").read_text())["config"])


def _plan(name: str, free: FreeMemory = MEASURED, fraction: float = 0.85, **fields: object) -> PoolPlan:
    model = _preset(name)
    options = {
        "parallel": ParallelConfig(),
        "runtime": RuntimeConfig(),
        "layers": range(model.num_layers),
    } | fields
    return plan_pool(free, fraction, model, **options)


def _buffers(pool: KVPool) -> list[torch.Tensor]:
    cache = pool.cache
    pairs = (
        (cache._latents, cache._index_keys) if isinstance(cache, LatentPool) else (cache._keys, cache._values)
    )
    return [buffer for layers in pairs for buffer in layers.values()]


def _rounded(nbytes: int, to: int) -> int:
    return -(-nbytes // to) * to


def test_a_stock_start_has_exactly_these_tokens_and_requests():
    plan = _plan("Qwen3-30B-A3B")
    assert (plan.tokens, plan.max_running_requests) == (TOKENS, REQUESTS)


def test_readings_without_emptying_the_cache_and_after_the_baseline_are_off_by_a_hundredth_of_a_percent():
    plan = _plan("Qwen3-30B-A3B", FreeMemory(FREE_BEFORE_LOAD, FREE_AFTER_LOAD))
    assert 0 < TOKENS - plan.tokens < TOKENS / 9000


def test_pools_of_a_stock_start_take_exactly_the_measured_memory():
    model, plan = _preset("Qwen3-30B-A3B"), _plan("Qwen3-30B-A3B")
    pool = make_kv_pool(plan, model, ParallelConfig(), range(model.num_layers), META)
    tensors = [pool.requests.table, pool.slots.allocate(plan.tokens), *_buffers(pool)]
    made = sum(_rounded(tensor.nbytes, 512) for tensor in tensors)
    assert made == ALLOCATED_AFTER_POOLS - ALLOCATED_BEFORE_POOLS - POINTER_TABLES


def test_the_reserved_memory_shows_what_the_cache_gave_back():
    model, plan = _preset("Qwen3-30B-A3B"), _plan("Qwen3-30B-A3B")
    pool = make_kv_pool(plan, model, ParallelConfig(), range(model.num_layers), META)
    # The free slots (5 MiB) found a hole beside the weights; all else took segments of its own.
    segments = sum(_rounded(tensor.nbytes, 2 * MIB) for tensor in [pool.requests.table, *_buffers(pool)])
    assert segments - (RESERVED_AFTER_POOLS - RESERVED_BEFORE_POOLS) == CACHE_GIVEN_BACK


@pytest.mark.parametrize(
    "name, kv_dtype, parallel",
    [
        ("Qwen3-30B-A3B", "auto", ParallelConfig(tp=4)),
        ("Qwen3-30B-A3B", "fp8_e4m3", ParallelConfig(tp=8, dp=4, enable_dp_attention=True)),
        ("Qwen3-30B-A3B", "bf16", ParallelConfig(tp=8)),
        ("Llama-3.1-8B", "float32", ParallelConfig()),
        ("DeepSeek-V3", "auto", ParallelConfig(tp=8)),
        ("DeepSeek-V3", "fp8_e4m3", ParallelConfig(tp=8)),
        ("DeepSeek-V3.2", "auto", ParallelConfig(tp=8)),
        ("GLM-5.1-FP8", "fp8_e4m3", ParallelConfig(tp=8, dp=8, enable_dp_attention=True)),
        ("GLM-5.1-FP8", "float32", ParallelConfig(tp=8)),
    ],
)
def test_the_buffers_take_what_the_plan_counted(name, kv_dtype, parallel):
    model, runtime = _preset(name), RuntimeConfig(kv_cache_dtype=kv_dtype)
    plan = _plan(name, parallel=parallel, runtime=runtime)
    pool = make_kv_pool(plan, model, parallel, range(3), META)
    per_token = kv_bytes_per_token_and_layer(model, parallel, plan.kv_dtype)
    assert sum(buffer.nbytes for buffer in _buffers(pool)) == 3 * per_token * (plan.tokens + plan.page_size)
    assert pool.requests.table.shape == (plan.max_running_requests + 1, plan.row_length)
    assert pool.slots.available == plan.tokens


def test_glm_on_blackwell_keeps_fp8_latents_and_its_requests_follow_from_them():
    parallel = ParallelConfig(tp=8, dp=8, enable_dp_attention=True)
    free = FreeMemory(int(174.2 * GIB), int(174.2 * GIB - 98.6 * GIB))
    runtime = RuntimeConfig(kv_cache_dtype="fp8_e4m3", packs_latents=False)
    plan = _plan("GLM-5.1-FP8", free, 0.9, parallel=parallel, runtime=runtime, sm_major=10)
    assert plan.kv_dtype == "fp8_e4m3" and plan.page_size == 64 and plan.tokens % 64 == 0
    per_token = kv_bytes_per_token_and_layer(_preset("GLM-5.1-FP8"), parallel, plan.kv_dtype, plan.packed)
    assert per_token == 576 + 132  # TRT-LLM's kernels read plain fp8 latents
    assert plan.max_running_requests == int(plan.tokens / 202752 * 512) > 2048


def test_sliding_layers_of_gpt_oss_keep_four_fifths_of_the_tokens() -> None:
    model, plan = _preset("gpt-oss-120b"), _plan("gpt-oss-120b")
    each = kv_bytes_per_token_and_layer(model, ParallelConfig(), "bfloat16")
    assert plan.sliding_tokens == int(plan.tokens * 0.8)
    budget = MEASURED.after_load - MEASURED.baseline * (1 - 0.85)
    spent = each * 18 * (plan.tokens + plan.sliding_tokens)
    assert budget - each * 36 < spent <= budget
    pool = make_kv_pool(plan, model, ParallelConfig(), range(36), META)
    assert [pool.cache.keys(layer).shape[0] for layer in (0, 1)] == [plan.sliding_tokens + 1, plan.tokens + 1]
    assert _plan("Qwen3-30B-A3B").sliding_tokens == 0
    paged = _plan("gpt-oss-120b", runtime=RuntimeConfig(page_size=64))
    four_fifths = int(paged.tokens * 0.8)
    assert paged.sliding_tokens % 64 == 0 and 0 <= four_fifths - paged.sliding_tokens < 64


def _mimo() -> ModelConfig:
    told = json.loads((DATA / "published_families.json").read_text())["XiaomiMiMo/MiMo-V2-Flash"]
    return model_config(told)


@pytest.mark.parametrize(("tp", "full", "sliding"), [(1, 4, 8), (4, 1, 2), (8, 1, 1), (16, 1, 1)])
def test_mimos_two_pools_have_heads_of_their_own(tp: int, full: int, sliding: int) -> None:
    """model_config.py: get_num_kv_heads and get_swa_num_kv_heads, keys of 192 and values of 128."""
    model, parallel = _mimo(), ParallelConfig(tp=tp)
    plan = plan_pool(MEASURED, 0.85, model, parallel, RuntimeConfig(page_size=64), range(48))
    budget = MEASURED.after_load - MEASURED.baseline * (1 - 0.85)
    a_token = 2 * (192 + 128) * (9 * full + 0.8 * 39 * sliding)
    assert plan.tokens == int(budget / a_token) // 64 * 64
    cache = make_kv_pool(plan, model, parallel, range(2), META).cache
    assert isinstance(cache, GqaPool)
    shapes = [tuple(buffer(layer).shape) for layer in (0, 1) for buffer in (cache.keys, cache.values)]
    rows, fewer = plan.tokens + 64, plan.sliding_tokens + 64
    of_full, behind = [(rows, full, 192), (rows, full, 128)], [(fewer, sliding, 192), (fewer, sliding, 128)]
    assert shapes == of_full + behind


def _m3() -> ModelConfig:
    told = json.loads((DATA / "published_families.json").read_text())["MiniMaxAI/MiniMax-M3"]
    return model_config(told)


@pytest.mark.parametrize(
    ("release", "major", "kv", "backend", "counted", "held"),
    [
        ("0.5.23", 9, "auto", "fa3", 2, "bfloat16"),
        ("0.5.23", 9, "fp8_e4m3", "fa3", 1, "fp8_e4m3"),
        ("0.5.23", 9, "fp8_e5m2", "fa3", 2, "bfloat16"),
        ("0.5.22", 9, "fp8_e4m3", "fa3", 2, "bfloat16"),
        ("0.5.23", 10, "fp8_e4m3", "trtllm_mha", 1, "fp8_e4m3"),
        ("0.5.23", 10, "fp8_e4m3", "fa4", 2, "bfloat16"),
        ("0.5.21", 10, "fp8_e4m3", "trtllm_mha", 1, "fp8_e4m3"),
        ("0.5.20", 10, "fp8_e4m3", "trtllm_mha", 2, "fp8_e4m3"),
        ("0.5.16", 10, "fp8_e4m3", "trtllm_mha", 2, "bfloat16"),
    ],
)
@pytest.mark.parametrize("tp", [1, 8])
def test_minimaxs_indexer_keeps_a_key_of_each_token(
    tp: int, release: str, major: int, kv: str, backend: str, counted: int, held: str
) -> None:
    """get_minimax_sparse_index_dtype of memory_pool.py, before 0.5.21 _build_minimax_sparse_kv_pool; and
    _compute_cell_size of pool_configurator.py: one key, whole on every rank, in 57 of 60 layers."""
    model, parallel = _m3(), ParallelConfig(tp=tp)
    runtime = RuntimeConfig(
        page_size=128, sglang_version=release, kv_cache_dtype=kv, attention_backend=backend
    )
    plan = plan_pool(MEASURED, 0.85, model, parallel, runtime, range(60), sm_major=major)
    width, heads = 2 if kv == "auto" else 1, max(1, 4 // tp)
    budget = MEASURED.after_load - MEASURED.baseline * (1 - 0.85)
    a_token = 60 * 2 * heads * 128 * width + 57 * 128 * counted
    assert plan.tokens == int(budget / a_token) // 128 * 128
    assert plan.index_dtype == held
    pool = make_kv_pool(plan, model, parallel, range(2, 4), META).cache
    assert isinstance(pool, IndexedPool)
    keys = pool.index_keys(3)
    assert tuple(keys.shape) == (plan.tokens + 128, 128) and tuple(pool.keys(3).shape)[1:] == (heads, 128)
    assert keys.element_size() == (1 if held == "fp8_e4m3" else 2)
    with pytest.raises(KeyError):
        pool.index_keys(2)


@pytest.mark.parametrize("tp", [1, 8])
def test_each_round_of_nanbeiges_layers_keeps_keys_of_its_own(tp: int) -> None:
    told = json.loads((DATA / "published_families.json").read_text())["a/nanbeige-4.2-3b-from-memory"]
    model, parallel = model_config(told), ParallelConfig(tp=tp)
    each = kv_bytes_per_token_and_layer(model, parallel, "bfloat16")
    assert each == 2 * 8 // tp * 128 * 2
    assert kv_bytes_per_token(model, parallel, "bfloat16", range(model.num_layers)) == 2 * 22 * each


@pytest.mark.parametrize("rounds", [2, 3])
def test_loop_coders_cache_has_each_round_again_as_often_as_it_has_rounds(rounds: int) -> None:
    """srt/model_executor counts attention of all rounds as layers, and those once a round."""
    told = json.loads((DATA / "published_families.json").read_text())[
        "a/iquest-coder-v1-40b-loop-instruct-from-memory"
    ]
    model, one = model_config({**told, "loop_num": rounds}), ParallelConfig()
    each = kv_bytes_per_token_and_layer(model, one, "bfloat16")
    assert each == 2 * 8 * 128 * 2
    assert kv_bytes_per_token(model, one, "bfloat16", range(model.num_layers)) == rounds**2 * 80 * each


def test_drafts_of_a_model_with_an_indexer_are_as_large_as_its_own_layers() -> None:
    plain, keys = 60 * 2 * 4 * 128 * 2, 57 * 128 * 2
    for drafts in (0, 1):
        each = kv_bytes_per_token(_m3(), ParallelConfig(), "bfloat16", range(60), drafts)
        assert each == int((plain + keys) * (1 + drafts / 60))


_CELLS = json.loads((DATA / "sglang_cells.json").read_text())


@pytest.mark.parametrize(("name", "tp"), [(name, int(tp)) for name in _CELLS for tp in _CELLS[name]])
def test_a_token_costs_two_pools_what_sglangs_own_configurator_says(name: str, tp: int) -> None:
    """tests/oracle/cells.py"""
    model = model_config(json.loads((DATA / "published_families.json").read_text())[name])
    full, sliding, cell = _CELLS[name][str(tp)]
    parallel = ParallelConfig(tp=tp)
    assert kv_bytes_per_token(model, parallel, "bfloat16", range(model.num_layers)) == cell
    assert kv_bytes_per_token_and_layer(model, parallel, "bfloat16") == full
    plan = plan_pool(MEASURED, 0.85, model, parallel, RuntimeConfig(), range(model.num_layers))
    cache = make_kv_pool(plan, model, parallel, range(model.num_layers), META).cache
    assert isinstance(cache, GqaPool)
    kinds = model.attention_kinds
    costs = {
        kind: 2 * (cache.keys(i)[0].numel() + cache.values(i)[0].numel()) for i, kind in enumerate(kinds)
    }
    assert costs == {"full": full, "sliding": sliding}


def test_what_layers_behind_windows_keep_is_what_is_asked() -> None:
    """HybridSWAPoolConfigurator, in every release."""
    each, budget = 2 * 8 * 64 * 2, MEASURED.after_load - MEASURED.baseline * (1 - 0.85)
    for share in (0.1, 0.5, 1.0):
        plan = _plan("gpt-oss-120b", runtime=RuntimeConfig(sliding_share=share))
        assert plan.tokens == int(budget // (18 * each + share * (18 * each)))
        assert plan.sliding_tokens == int(plan.tokens * share)


def test_a_stage_of_windows_alone_has_tokens_as_wide_as_theirs() -> None:
    """All of the stage's layers slide, and all of its tokens are theirs."""
    alone = kv_bytes_per_token(_mimo(), ParallelConfig(tp=2, pp=8), "bfloat16", range(1, 5))
    assert alone == 4 * 4 * (192 + 128) * 2


def test_asked_requests_are_split_over_attention_dp_ranks():
    parallel = ParallelConfig(tp=8, dp=8, enable_dp_attention=True)
    speculative = RuntimeConfig(speculative=SpeculativeConfig("EAGLE"), max_running_requests=48)
    assert _plan("GLM-5.1-FP8", parallel=parallel, runtime=speculative).max_running_requests == 6
    asked = replace(speculative, max_running_requests=1000)
    assert _plan("GLM-5.1-FP8", parallel=parallel, runtime=asked).max_running_requests == 125


def test_a_draft_shares_the_budget_and_stages_agree_on_the_fewest_tokens():
    alone, shared = _plan("Llama-3.1-8B"), _plan("Llama-3.1-8B", draft_layers=1)
    assert shared.tokens == pytest.approx(alone.tokens * 32 / 33, abs=1)
    assert _plan("Llama-3.1-8B", layers=range(16), agree=lambda tokens: min(tokens, 1000)).tokens == 1000


def test_the_kv_dtype_of_a_start():
    assert kv_dtype_of(RuntimeConfig()) == "bfloat16"
    assert kv_dtype_of(RuntimeConfig(kv_cache_dtype="bf16", dtype="float16")) == "bfloat16"
    assert kv_dtype_of(RuntimeConfig(kv_cache_dtype="fp8_e5m2")) == "fp8_e5m2"


@pytest.mark.parametrize(
    "speculative, page, columns",
    [
        (None, 64, 4),
        (SpeculativeConfig("EAGLE", num_steps=3, num_draft_tokens=4), 1, 8),
        (SpeculativeConfig("EAGLE", num_steps=3, num_draft_tokens=4), 64, 2 * 4 + 63),
        # a tree of 4 branches, each of 3 steps, may touch two pages a branch
        (
            SpeculativeConfig("EAGLE", num_steps=3, eagle_topk=4, num_draft_tokens=8),
            64,
            2 * (2 * 64 * 4) + 63,
        ),
    ],
)
def test_rows_have_room_for_tokens_written_ahead(speculative, page, columns):
    assert table_headroom(speculative, page, "all") == columns


def test_no_room_for_the_pool_names_the_fraction_that_would_do():
    with pytest.raises(ConfigError, match=r"--mem-fraction-static 0\.5 .* take 0\.801 .* raise it above"):
        _plan("Qwen3-30B-A3B", FreeMemory(100 * GIB, int(19.95 * GIB)), 0.5)


def test_an_unknown_kv_dtype_is_refused():
    with pytest.raises(ConfigError, match=r"--kv-cache-dtype nvfp4: .*fp8_e4m3"):
        _plan("Qwen3-30B-A3B", runtime=RuntimeConfig(kv_cache_dtype="nvfp4"))


def test_a_stage_without_attention_has_as_many_tokens_as_another_could_have():
    kinds = ("recurrent",) * 4 + ("full",) * 4
    mamba = Mamba2Config(16, 64, 8, 128, 4, True, False, 0.0, 128)
    model = replace(
        _preset("Qwen3-30B-A3B"),
        num_layers=8,
        attention_kinds=kinds,
        layer_kinds=("moe",) * 8,
        recurrent=mamba,
    )
    two, runtime = ParallelConfig(pp=2), RuntimeConfig()
    free = FreeMemory(100 * GIB, 80 * GIB)
    plans = [plan_pool(free, 0.8, model, two, runtime, layers) for layers in (range(4), range(4, 8))]
    assert plans[0].tokens == plans[1].tokens < 1 << 30
    assert plans[0].states == plans[1].states
    agreed = plan_pool(free, 0.8, model, two, runtime, range(4), agree=lambda tokens: min(tokens, 1000))
    assert agreed.tokens == 1000


@pytest.mark.parametrize(("most", "tokens"), [(100_000, 100_000), (100_001, 100_001), (10**9, TOKENS)])
def test_a_pool_holds_no_more_than_was_asked(most, tokens):
    plan = _plan("Qwen3-30B-A3B", runtime=RuntimeConfig(max_total_tokens=most))
    assert plan.tokens == tokens and plan.max_running_requests == (REQUESTS if most == 10**9 else 2048)


def test_a_pool_that_holds_no_page_is_none():
    with pytest.raises(ConfigError, match="holds no page of 64"):
        _plan("Qwen3-30B-A3B", runtime=RuntimeConfig(max_total_tokens=63, page_size=64))

"""How large the KV pool is: SGLang's arithmetic from free memory to tokens and requests. No torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from runtime.server.compressed_sizes import CompressedPlan, compressed_tokens, plan_compressed
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError, NoRoomForTokens
from runtime.server.parallel import stage_layers
from runtime.server.parallel_config import ParallelConfig
from runtime.server.releases import PagesAhead
from runtime.server.requests import MORE_TOKENS_THAN_ANY_POOL, arriving_beside, max_running_requests
from runtime.server.sizing import (
    DTYPE_BYTES,
    PACKED,
    block_key_dtype,
    has_block_keys,
    has_window_pool,
    kept_layers,
    kv_bytes_per_token,
    kv_tokens,
    packs_pages,
    pooled_layers,
    sliding_layers,
    static_rest,
)
from runtime.server.speculative_config import SpeculativeConfig
from runtime.server.state_sizes import (
    StatePlan,
    arrived,
    drafted_states,
    plan_states,
    requests_for,
    states_for,
)
from runtime.server.units import MIB
from runtime.server.windows import bounds_windows, windows_of

DSA_PAGE_SIZE = 64
TABLE_HEADROOM = 4


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """Bytes free on the fullest rank, torch's cache emptied: all groups joined, and all weights loaded."""

    baseline: int
    after_load: int


@dataclass(frozen=True, slots=True)
class PoolPlan:
    tokens: int
    page_size: int
    kv_dtype: str
    max_running_requests: int
    row_length: int
    packed: bool = True  # fp8 latents of sparse attention, with their scales
    sliding_tokens: int = 0  # of sliding layers, where they have a pool of their own
    states: StatePlan | None = None  # of recurrent layers
    compressed: CompressedPlan | None = None  # as SGLang lays keys of groups of tokens
    index_dtype: str | None = None  # of keys of an indexer of blocks
    pools_next: bool = False  # of layers behind windows, those of a stage and one more: pooled_layers
    arriving: int = 0  # requests with a row beside those that run
    keeps_nothing: bool = False  # its buffers have a page, for whoever asks for one

    @property
    def rows(self) -> int:
        """Requests that the table holds."""
        return self.max_running_requests + self.arriving


def kv_dtype_of(runtime: RuntimeConfig) -> str:
    asked = {"bf16": "bfloat16", "fp16": "float16"}.get(runtime.kv_cache_dtype, runtime.kv_cache_dtype)
    if asked == "auto":
        return runtime.dtype
    if asked not in DTYPE_BYTES:
        raise ConfigError(f"--kv-cache-dtype {asked}: this runtime has auto, {', '.join(DTYPE_BYTES)}")
    return asked


def index_dtype(model: ModelConfig, runtime: RuntimeConfig, sm_major: int) -> str | None:
    if not has_block_keys(model):
        return None
    if packs_pages(model, sm_major):
        return PACKED
    majors, backend = runtime.release.fp8_block_keys_on, runtime.attention_backend
    return block_key_dtype(runtime.dtype, kv_dtype_of(runtime), backend, majors, sm_major)


def _counted_index_dtype(model: ModelConfig, runtime: RuntimeConfig, sm_major: int) -> str | None:
    """Once of the model's dtype whatever they were."""
    if has_block_keys(model) and not runtime.release.counts_fp8_block_keys:
        return runtime.dtype
    return index_dtype(model, runtime, sm_major)


def plan_pool(
    free: FreeMemory,
    mem_fraction: float,
    model: ModelConfig,
    parallel: ParallelConfig,
    runtime: RuntimeConfig,
    layers: Sequence[int],
    draft_layers: int = 0,
    sm_major: int = 9,
    agree: Callable[[int], int] = int,
    beside: Callable[[float, int], float] | None = None,
) -> PoolPlan:
    """`layers` of this stage; a draft's layers hold as many tokens. `agree` takes the minimum over stages.
    `beside`: what a token counts beside a draft, of what it does without, in so many layers that keep it."""
    rest, states = static_rest(free.after_load, free.baseline, mem_fraction) - runtime.images_mib * MIB, None
    if model.compressed is not None:
        tokens = agree(compressed_tokens(rest, model, parallel, runtime, layers))
        return _with_groups(_found(tokens, free, mem_fraction), model, parallel, runtime, layers)
    layers = pooled_layers(model, layers, runtime.release.pools_next_layer)
    kv_dtype, page = kv_dtype_of(runtime), page_size(model, runtime)
    packed = runtime.release.counts_packed_latents and runtime.packs_latents
    share = runtime.sliding_share
    keys = _counted_index_dtype(model, runtime, sm_major)
    per_token = kv_bytes_per_token(model, parallel, kv_dtype, layers, draft_layers, packed, share, keys)
    if beside is not None:
        per_token = beside(per_token, len(kept_layers(model, layers)))
    if model.recurrent is not None:
        budget = plan_states(rest, model, parallel, runtime)
        rest, states = budget.left, budget.plan
    tokens = agree(kv_tokens(rest, per_token, page))
    if tokens == MORE_TOKENS_THAN_ANY_POOL:  # nobody said how many the other stages have
        tokens = kv_tokens(rest, _most_of_stages(model, parallel, kv_dtype, share, keys), page)
    if tokens == MORE_TOKENS_THAN_ANY_POOL:
        tokens = _of_states_alone(rest, model, runtime)
    tokens = _at_most(_found(tokens, free, mem_fraction), runtime)
    plan = plan_tokens(tokens, model, parallel, runtime, sm_major, states)
    _check_windows(plan, model, runtime, layers)
    return plan


def _check_windows(plan: PoolPlan, model: ModelConfig, runtime: RuntimeConfig, layers: Sequence[int]) -> None:
    """validate_swa_pool_size of srt/model_executor/pool_configurator.py."""
    window = windows_of(model).tokens
    is_bounded = bounds_windows(runtime.release, runtime.max_running_requests, runtime.states)
    if window is None or is_bounded or not sliding_layers(model, layers):
        return
    if runtime.release.asks_windows_for_a_request and plan.sliding_tokens <= window + plan.page_size:
        raise NoRoomForTokens(
            f"a pool of {plan.sliding_tokens:,} tokens behind windows of {window:,} holds no request: "
            "more tokens, or a larger --swa-full-tokens-ratio"
        )


def _of_states_alone(rest: float, model: ModelConfig, runtime: RuntimeConfig) -> int:
    """Where no layer keeps keys: _zero_kv_max_tokens of srt/model_executor/pool_configurator.py."""
    return 0 if rest <= 0 else runtime.max_total_tokens or runtime.context_length or model.max_position


def _found(tokens: int, free: FreeMemory, mem_fraction: float) -> int:
    if tokens <= 0:
        raise NoRoomForTokens(_no_room(free, mem_fraction))
    return tokens


def _at_most(tokens: int, runtime: RuntimeConfig) -> int:
    return tokens if runtime.max_total_tokens is None else min(tokens, runtime.max_total_tokens)


def _with_groups(
    tokens: int, model: ModelConfig, parallel: ParallelConfig, runtime: RuntimeConfig, layers: Sequence[int]
) -> PoolPlan:
    plan = plan_tokens(_at_most(tokens, runtime), model, parallel, runtime)
    groups = plan_compressed(plan.tokens, plan.max_running_requests, model, runtime, layers)
    return replace(plan, compressed=groups)


def _most_of_stages(
    model: ModelConfig, parallel: ParallelConfig, kv_dtype: str, share: float, keys: str | None
) -> float:
    stages = (stage_layers(model.num_layers, parallel, stage) for stage in range(parallel.pp))
    return max(
        kv_bytes_per_token(model, parallel, kv_dtype, layers, share=share, index_dtype=keys)
        for layers in stages
    )


def plan_tokens(
    tokens: int,
    model: ModelConfig,
    parallel: ParallelConfig,
    runtime: RuntimeConfig,
    sm_major: int = 9,
    states: StatePlan | None = None,
) -> PoolPlan:
    """The pool of a known number of tokens, and the requests that these and their states allow."""
    page = page_size(model, runtime)
    if tokens < page:
        raise NoRoomForTokens(f"a KV pool of {tokens} tokens holds no page of {page}")
    tokens = tokens // page * page
    context = runtime.context_length or model.max_position
    requests = max_running_requests(
        tokens, context, runtime.max_running_requests, parallel.attn_dp, runtime.release
    )
    if states is not None:
        requests = requests_for(states, requests, runtime)
    elif model.recurrent is not None:
        states = states_for(requests, runtime)
    arriving = arriving_beside(requests) if runtime.arriving is None else runtime.arriving
    if states is not None:
        states = drafted_states(arrived(states, requests + arriving, runtime), requests + arriving, runtime)
    return PoolPlan(
        tokens=tokens,
        page_size=page,
        kv_dtype=kv_dtype_of(runtime),
        max_running_requests=requests,
        arriving=arriving,
        row_length=context + table_headroom(runtime.speculative, page, runtime.release.pages_ahead),
        packed=runtime.packs_latents,
        sliding_tokens=int(tokens * runtime.sliding_share) // page * page if has_window_pool(model) else 0,
        states=states,
        index_dtype=index_dtype(model, runtime, sm_major),
        pools_next=runtime.release.pools_next_layer,
        keeps_nothing=runtime.keeps_nothing,
    )


def page_size(model: ModelConfig, runtime: RuntimeConfig) -> int:
    indexer = None if model.mla is None else model.mla.indexer
    return runtime.page_size if indexer is None else DSA_PAGE_SIZE * indexer.pool


def table_headroom(speculative: SpeculativeConfig | None, page: int, ahead: PagesAhead) -> int:
    """Columns of the request table behind the context: speculation writes ahead of what it keeps."""
    if speculative is None:
        return TABLE_HEADROOM
    headroom = TABLE_HEADROOM + speculative.num_draft_tokens
    if page == 1 or ahead == "none" or (ahead != "all" and speculative.eagle_topk == 1):
        return headroom
    partial = page - 1 if ahead == "all" else 0
    return max(headroom, 2 * _tokens_ahead(speculative, page, ahead) + partial)


def _tokens_ahead(speculative: SpeculativeConfig, page: int, ahead: PagesAhead) -> int:
    """UNO keeps a root beside its drafts."""
    steps = speculative.num_steps
    if speculative.algorithm == "UNO":
        return speculative.num_draft_tokens + 1
    writes = ahead == "of any tree" or speculative.algorithm != "NGRAM"
    if speculative.eagle_topk > 1 and writes:  # each branch has pages of its own
        steps = (2 * (page - 1) + steps) // page * page
    return max(steps * speculative.eagle_topk, speculative.num_draft_tokens)


def _no_room(free: FreeMemory, mem_fraction: float) -> str:
    needed = math.ceil((1 - free.after_load / free.baseline) * 1000) / 1000
    return (
        f"--mem-fraction-static {mem_fraction} leaves no memory for the KV pool: the weights alone take "
        f"{needed:.3f} of what was free; raise it above that, or spread the weights over more GPUs"
    )

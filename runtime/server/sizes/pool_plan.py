"""How large the KV pool is: SGLang's arithmetic from free memory to tokens and requests. No torch."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError, NoRoomForTokens
from runtime.server.parallel import ParallelConfig, stage_layers
from runtime.server.sizes.batches import MORE_TOKENS_THAN_ANY_POOL, max_running_requests
from runtime.server.sizes.sizing import (
    DTYPE_BYTES,
    has_window_pool,
    kv_bytes_per_token,
    kv_tokens,
    sliding_layers,
    static_rest,
)
from runtime.server.sizes.state_sizes import StatePlan, drafted_states, plan_states, requests_for, states_for

DSA_PAGE_SIZE = 64
TABLE_HEADROOM = 4  # columns of the request table after the context


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """Free bytes on the fullest rank, before and after loading, with torch's cache empty."""

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
    sliding_tokens: int = 0  # of sliding layers, if they have a pool of their own
    states: StatePlan | None = None  # of recurrent layers


def kv_dtype_of(runtime: RuntimeConfig) -> str:
    asked = runtime.cache.dtype
    if asked == "auto":
        return runtime.dtype
    if asked not in DTYPE_BYTES:
        raise ConfigError(f"--kv-cache-dtype {asked}: this runtime has auto, {', '.join(DTYPE_BYTES)}")
    return asked


def plan_pool(
    free: FreeMemory,
    mem_fraction: float,
    model: ModelConfig,
    parallel: ParallelConfig,
    runtime: RuntimeConfig,
    layers: Sequence[int],
    draft_layers: int = 0,
    agree: Callable[[int], int] = int,
) -> PoolPlan:
    """Return this stage's pool for `layers`; a draft's keep as many tokens. `agree` returns the minimum."""
    rest, states = static_rest(free.after_load, free.baseline, mem_fraction), None
    kv_dtype, page, share = kv_dtype_of(runtime), page_size(model, runtime), runtime.cache.sliding_share
    per_token = kv_bytes_per_token(
        model, parallel, kv_dtype, layers, draft_layers, runtime.cache.packs_latents, share
    )
    if model.recurrent is not None:
        states, rest = plan_states(rest, model, parallel, runtime)
    tokens = agree(kv_tokens(rest, per_token, page))
    if tokens == MORE_TOKENS_THAN_ANY_POOL:  # the other stages' numbers are not known
        tokens = kv_tokens(rest, _most_of_stages(model, parallel, kv_dtype, share), page)
    if tokens <= 0:
        raise NoRoomForTokens(_no_room(free, mem_fraction))
    most = runtime.cache.max_tokens
    tokens = tokens if most is None else min(tokens, most)
    plan = plan_tokens(tokens, model, parallel, runtime, states)
    _check_windows(plan, model, layers)
    return plan


def _check_windows(plan: PoolPlan, model: ModelConfig, layers: Sequence[int]) -> None:
    """Refuse too small a pool for windows: see srt/model_executor/pool_configurator.py."""
    if not sliding_layers(model, layers):
        return
    window = model.attention["sliding"].window or 0
    if plan.sliding_tokens <= window + plan.page_size:
        raise NoRoomForTokens(
            f"a pool of {plan.sliding_tokens:,} tokens behind windows of {window:,} holds no request: "
            "more tokens, or a larger --swa-full-tokens-ratio"
        )


def _most_of_stages(model: ModelConfig, parallel: ParallelConfig, kv_dtype: str, share: float) -> float:
    stages = (stage_layers(model.num_layers, parallel, stage) for stage in range(parallel.pp))
    return max(kv_bytes_per_token(model, parallel, kv_dtype, layers, share=share) for layers in stages)


def plan_tokens(
    tokens: int,
    model: ModelConfig,
    parallel: ParallelConfig,
    runtime: RuntimeConfig,
    states: StatePlan | None = None,
) -> PoolPlan:
    """Return the pool of a known number of tokens, with the requests that tokens and states allow."""
    page = page_size(model, runtime)
    if tokens < page:
        raise NoRoomForTokens(f"a KV pool of {tokens} tokens holds no page of {page}")
    tokens = tokens // page * page
    context = runtime.context_length or model.max_position
    requests = max_running_requests(tokens, context, runtime.max_running_requests, parallel.attn_dp)
    if states is not None:
        requests = requests_for(states, requests, runtime)
    elif model.recurrent is not None:
        states = states_for(requests, runtime)
    if states is not None:
        states = drafted_states(states, requests, runtime)
    return PoolPlan(
        tokens=tokens,
        page_size=page,
        kv_dtype=kv_dtype_of(runtime),
        max_running_requests=requests,
        row_length=context + TABLE_HEADROOM + (runtime.width if runtime.speculative else 0),
        packed=runtime.cache.packs_latents,
        sliding_tokens=int(tokens * runtime.cache.sliding_share) // page * page
        if has_window_pool(model)
        else 0,
        states=states,
    )


def page_size(model: ModelConfig, runtime: RuntimeConfig) -> int:
    indexer = None if model.mla is None else model.mla.indexer
    return runtime.cache.page_size if indexer is None else DSA_PAGE_SIZE


def _no_room(free: FreeMemory, mem_fraction: float) -> str:
    needed = math.ceil((1 - free.after_load / free.baseline) * 1000) / 1000
    return (
        f"--mem-fraction-static {mem_fraction} leaves no memory for the KV pool: the weights alone take "
        f"{needed:.3f} of what was free; raise it above that, or spread the weights over more GPUs"
    )

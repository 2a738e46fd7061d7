"""How many states there is room for beside the KV cache: SGLang's own arithmetic.

srt/mem_cache/kv_cache_configurator.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError, NoRoomForTokens
from runtime.server.parallel import stage_layers
from runtime.server.parallel_config import ParallelConfig
from runtime.server.requests import share_of

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class StatePlan:
    """`slots` behind one of padding, and `drafts` requests, whose drafted tokens each have a state."""

    slots: int
    conv_dtype: str
    recurrent_dtype: str
    drafts: int = 0
    draft_tokens: int = 0
    shares_windows: bool = False  # of drafted tokens, the inputs of one are those of the next but one column


@dataclass(frozen=True, slots=True)
class StateBudget:
    """What of the `rest` of memory the states leave for tokens, in bytes."""

    plan: StatePlan
    left: float


def state_bytes(model: ModelConfig, parallel: ParallelConfig, runtime: RuntimeConfig) -> int:
    """Of one request on the stage that has most of them."""
    assert model.recurrent is not None
    every = [layer for layer in range(model.num_layers) if model.is_recurrent(layer)]
    most = len(every)
    if parallel.pp > 1:
        most = max(len(_recurrent(model, parallel, stage)) for stage in range(parallel.pp))
    each = model.recurrent.state_shape(parallel.attn_tp).nbytes(
        DTYPE_BYTES[runtime.states.conv_dtype], DTYPE_BYTES[runtime.states.recurrent_dtype]
    )
    return int(each * len(every) * (most / max(len(every), 1)))


def _recurrent(model: ModelConfig, parallel: ParallelConfig, stage: int) -> list[int]:
    layers = stage_layers(model.num_layers, parallel, stage)
    return [layer for layer in layers if model.is_recurrent(layer)]


def plan_states(
    rest: float, model: ModelConfig, parallel: ParallelConfig, runtime: RuntimeConfig
) -> StateBudget:
    """Drafts have as many beside them."""
    rules, each, padding = runtime.states, state_bytes(model, parallel, runtime), 1
    drafted = runtime.speculative.num_draft_tokens if runtime.speculative and rules.drafts else 0
    asked = _share(runtime, parallel)
    if drafted and asked is None:
        raise ConfigError("a draft beside states needs --max-running-requests")
    slots = _slots(rest, each, drafted, asked, parallel, runtime)
    if slots <= 0:
        raise NoRoomForTokens(_no_room(each))
    if drafted and asked is not None:
        rest -= each * (min(asked, slots // rules.slots_each) + padding) * drafted
    plan = StatePlan(slots, rules.conv_dtype, rules.recurrent_dtype)
    return StateBudget(plan, rest - (slots + padding) * each)


def _slots(
    rest: float, each: int, drafted: int, asked: int | None, parallel: ParallelConfig, runtime: RuntimeConfig
) -> int:
    """As asked; or one a request where no prefix is kept; or what their share of memory holds."""
    rules, padding = runtime.states, 1
    if rules.slots is not None:
        return rules.slots // parallel.attn_dp
    if not rules.keeps_prefixes and asked is not None:
        return asked
    if not 0 < rules.share < math.inf:
        return 0
    budget = rest * rules.share / (1 + rules.share) - each * padding * (1 + drafted)
    return int(budget // (each * (1 + drafted / rules.slots_each)))


def _share(runtime: RuntimeConfig, parallel: ParallelConfig) -> int | None:
    """The requests that were asked for, of one attention group."""
    if runtime.max_running_requests is None:
        return None
    return share_of(runtime.max_running_requests, parallel.attn_dp)


def states_for(requests: int, runtime: RuntimeConfig) -> StatePlan:
    """Where memory does not say: a state for each request."""
    rules = runtime.states
    return StatePlan(requests, rules.conv_dtype, rules.recurrent_dtype)


def arrived(plan: StatePlan, requests: int, runtime: RuntimeConfig) -> StatePlan:
    """A decode server has room for all whose keys arrive, whatever was left for them:
    HybridMambaDecodeReqToTokenPool of srt/disaggregation/decode.py."""
    if not runtime.is_pd_decode:
        return plan
    return replace(plan, slots=max(plan.slots, requests * (1 + runtime.states.tracked)))


def drafted_states(plan: StatePlan, requests: int, runtime: RuntimeConfig) -> StatePlan:
    """With those that a verify leaves of each drafted token."""
    if runtime.speculative is None or not runtime.states.verifies:
        return plan
    speculative = runtime.speculative
    shares = speculative.eagle_topk <= 1
    return replace(plan, drafts=requests, draft_tokens=speculative.num_draft_tokens, shares_windows=shares)


def requests_for(plan: StatePlan, requests: int, runtime: RuntimeConfig) -> int:
    """No more than have states: some of them are kept for prefixes."""
    allowed = min(requests, plan.slots // runtime.states.slots_each)
    if allowed <= 0:
        raise NoRoomForTokens(
            f"{plan.slots} states are less than the {runtime.states.slots_each} that one request takes: "
            "raise --mem-fraction-static or --max-mamba-cache-size"
        )
    return allowed


def _no_room(each: int) -> str:
    return (
        f"no memory is left for the state of one request, {each / 2**20:.1f} MiB: raise "
        "--mem-fraction-static or --mamba-full-memory-ratio, or spread the weights over more GPUs"
    )

"""How many states fit beside the KV cache: srt/mem_cache/kv_cache_configurator.py."""

from dataclasses import dataclass, replace

from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError, NoRoomForTokens
from runtime.server.parallel import ParallelConfig, stage_layers
from runtime.server.sizes.batches import share_of

_DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_SHARE = 0.9  # the default of --mamba-full-memory-ratio: the states' memory by the tokens'
_PADDING = 1


@dataclass(frozen=True, slots=True)
class StatePlan:
    """Places for states: `slots` besides one of padding, and one per drafted token of `drafts` requests."""

    slots: int
    conv_dtype: str
    recurrent_dtype: str
    drafts: int = 0
    draft_tokens: int = 0


def state_bytes(model: ModelConfig, parallel: ParallelConfig, runtime: RuntimeConfig) -> int:
    """Return the bytes of one request's states, on the stage with the most recurrent layers."""
    assert model.recurrent is not None
    stages = (stage_layers(model.num_layers, parallel, stage) for stage in range(parallel.pp))
    most = max(sum(map(model.is_recurrent, layers)) for layers in stages)
    dtypes = runtime.states.conv_dtype, runtime.states.recurrent_dtype
    return most * model.recurrent.state_shape(parallel.attn_tp).nbytes(*(_DTYPE_BYTES[one] for one in dtypes))


def plan_states(
    rest: float, model: ModelConfig, parallel: ParallelConfig, runtime: RuntimeConfig
) -> tuple[StatePlan, float]:
    """Return the states, and the bytes of `rest` left for tokens. Drafted tokens have states too."""
    rules, each = runtime.states, state_bytes(model, parallel, runtime)
    drafted = runtime.speculative.num_draft_tokens if runtime.speculative else 0
    requests = runtime.max_running_requests
    asked = None if requests is None else share_of(requests, parallel.attn_dp)
    if not rules.keeps_prefixes and asked is not None:
        slots = asked
    else:
        budget = rest * _SHARE / (1 + _SHARE) - each * _PADDING * (1 + drafted)
        slots = int(budget // (each * (1 + drafted / rules.slots_each)))
    if slots <= 0:
        raise NoRoomForTokens(
            f"no memory is left for the state of one request, {each / 2**20:.1f} MiB: raise "
            "--mem-fraction-static, or spread the weights over more GPUs"
        )
    if drafted:
        if asked is None:
            raise ConfigError("a draft beside states needs --max-running-requests")
        rest -= each * (min(asked, slots // rules.slots_each) + _PADDING) * drafted
    return states_for(slots, runtime), rest - (slots + _PADDING) * each


def states_for(slots: int, runtime: RuntimeConfig) -> StatePlan:
    return StatePlan(slots, runtime.states.conv_dtype, runtime.states.recurrent_dtype)


def drafted_states(plan: StatePlan, requests: int, runtime: RuntimeConfig) -> StatePlan:
    """Return the plan with the states that a verify writes for each drafted token."""
    one = runtime.speculative
    return plan if one is None else replace(plan, drafts=requests, draft_tokens=one.num_draft_tokens)


def requests_for(plan: StatePlan, requests: int, runtime: RuntimeConfig) -> int:
    """Return the requests that have states; some states are reserved for prefixes."""
    allowed = min(requests, plan.slots // runtime.states.slots_each)
    if allowed <= 0:
        raise NoRoomForTokens(
            f"{plan.slots} states are less than the {runtime.states.slots_each} that one request takes: "
            "raise --mem-fraction-static"
        )
    return allowed

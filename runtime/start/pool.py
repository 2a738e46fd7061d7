"""How many tokens a starting rank has room for, and what is told of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from runtime.devices.base import Device
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.sizes.pool_plan import FreeMemory, PoolPlan, plan_pool, plan_tokens
from runtime.server.sizes.rows import aligned_rows
from runtime.server.sizes.sizing import kv_bytes_per_token
from runtime.server.sizes.start_sizes import captured_sizes
from runtime.server.sizes.state_sizes import state_bytes
from runtime.start.options import StartOptions


class PoolPlanner:
    """`layers` are those of the rank's stage, `drafts` the draft layers that keep keys and values."""

    def __init__(
        self,
        model: ModelConfig,
        parallel: ParallelConfig,
        runtime: RuntimeConfig,
        layers: Sequence[int],
        drafts: int,
    ) -> None:
        self.model, self.parallel, self.runtime = model, parallel, runtime
        self.layers, self.drafts = layers, drafts

    def plan(
        self, device: Device, free: FreeMemory, options: StartOptions, agree: Callable[[int], int]
    ) -> PoolPlan:
        """What the static fraction leaves after the weights, in tokens that every stage has room for."""
        tokens = options.given_tokens(bool(device.memory().total))
        asked = self.model, self.parallel, self.runtime
        if tokens is not None:
            return plan_tokens(tokens, *asked)

        def agreed(found: int) -> int:
            return agree(found if options.most_tokens is None else min(found, options.most_tokens))

        fraction = self.runtime.mem_fraction_static
        return plan_pool(free, fraction, *asked, self.layers, draft_layers=self.drafts, agree=agreed)

    def facts(self, plan: PoolPlan) -> dict[str, Any]:
        """For the run's file."""
        runtime, asked, requests = self.runtime, (self.model, self.parallel), plan.max_running_requests
        each = kv_bytes_per_token(
            *asked, plan.kv_dtype, self.layers, self.drafts, plan.packed, runtime.cache.sliding_share
        )
        facts: dict[str, Any] = {
            "kv_bytes_per_token": round(each),
            "kv_tokens": plan.tokens,
            "max_running_requests": requests,
            "dummy_batch_rows": aligned_rows(requests, runtime.width, self.parallel),
            "decode_graphs": captured_sizes(requests, self.parallel, runtime),
        }
        if plan.states is not None:
            facts |= {"states": plan.states.slots, "state_bytes": state_bytes(*asked, runtime)}
        return facts

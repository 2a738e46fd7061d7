"""How many tokens a starting rank has room for, and what its requests and drafts keep of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runtime.devices.base import Device
from runtime.forward.comm import Communicator
from runtime.forward.kv_pool import KVPool, make_cache
from runtime.graphs.draft import AnyDraft
from runtime.models.decoder import Decoder
from runtime.models.draft import num_drafts
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.own_draft import OwnDraft
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import FreeMemory, PoolPlan, plan_pool, plan_tokens
from runtime.server.rows import aligned_rows
from runtime.server.sizing import kv_bytes_per_token, pooled_layers
from runtime.server.start_sizes import StartSizes, captured_sizes
from runtime.server.state_sizes import state_bytes
from runtime.start.options import StartOptions
from runtime.start.phases import PhaseRecorder


class Pooling:
    """The part of a model runner that plans its pools."""

    model: ModelConfig
    parallel: ParallelConfig
    runtime: RuntimeConfig
    own_draft: OwnDraft | None
    device: Device
    comm: Communicator
    recorder: PhaseRecorder
    options: StartOptions
    sizes: StartSizes
    decoder: Decoder
    layers: Sequence[int]
    kv: KVPool
    plan: PoolPlan
    baseline: int
    max_running_requests: int

    def _free_everywhere(self) -> int:
        self.device.empty_cache()
        return self.comm.min_over(self.device.memory().free)

    def _plan_pool(self) -> PoolPlan:
        tokens = self.options.given_tokens(limited=bool(self.device.memory().total))
        if tokens is not None:
            return plan_tokens(tokens, self.model, self.parallel, self.runtime, self.device.sm_major)
        return plan_pool(
            FreeMemory(self.baseline, self._free_everywhere()),
            self.sizes.mem_fraction,
            self.model,
            self.parallel,
            self.runtime,
            self.layers,
            draft_layers=self._counted_layers,
            sm_major=self.device.sm_major,
            agree=self._agreed,
            beside=self._beside_draft,
        )

    def _beside_draft(self, cell: float, kept: int) -> float:
        return cell if self.own_draft is None else self.own_draft.counted_beside(cell, kept, self.model)

    def _agreed(self, tokens: int) -> int:
        """Every stage has as many as the one with the fewest."""
        most = self.options.most_tokens
        return self.comm.min_over(tokens if most is None else min(tokens, most))

    def _draft_kv(self, draft: AnyDraft) -> KVPool:
        """A draft's own keys and values in the target's slots; a frozen one reads the target's."""
        if not self._draft_layers:
            return self.kv
        parallel, plan, own = self.parallel, self.plan, self.own_draft
        if own is not None:
            parallel = own.parallel
        plan = replace(plan, kv_dtype=self._draft_dtype)
        cache = make_cache(plan, draft.decoder.model, parallel, draft.layer_ids, self.device.torch_device)
        return KVPool(self.kv.requests, self.kv.slots, cache)

    @property
    def _draft_dtype(self) -> str:
        """Of its keys and values."""
        told = self.runtime.speculative and self.runtime.speculative.kv_cache_dtype
        return self.own_draft.kv_dtype if self.own_draft else told or self.plan.kv_dtype

    def _tell_pool(self) -> None:
        plan, requests = self.plan, self.max_running_requests
        self.recorder.tell(
            **self._told_states(),
            **self._told_bytes(),
            kv_tokens=plan.tokens,
            max_running_requests=requests,
            dummy_batch_rows=aligned_rows(requests, self.sizes.width, self.parallel),
            decode_graphs=captured_sizes(requests, self.parallel, self.runtime),
        )

    def _told_bytes(self) -> dict[str, int]:
        """But of this runtime's own pool of groups, whose slots hold more than a token's."""
        if self.model.compressed is not None and self.plan.compressed is None:
            return {}
        return {"kv_bytes_per_token": round(self._bytes_per_token())}

    def _bytes_per_token(self) -> float:
        plan, own, drafts = self.plan, self.own_draft, self._draft_layers
        if plan.compressed is not None:
            return plan.compressed.bytes_per_token

        def of(dtype: str, drafts: int) -> float:
            share, keys = self.runtime.sliding_share, plan.index_dtype
            layers = pooled_layers(self.model, self.layers, plan.pools_next)
            return kv_bytes_per_token(
                self.model, self.parallel, dtype, layers, drafts, plan.packed, share, keys
            )

        kept = self._draft_dtype
        if own is not None:
            layers = range(own.model.num_layers)
            return of(plan.kv_dtype, 0) + kv_bytes_per_token(own.model, own.parallel, kept, layers)
        if kept == plan.kv_dtype:
            return of(kept, drafts)
        return of(plan.kv_dtype, 0) + of(kept, drafts) - of(kept, 0)

    def _told_states(self) -> dict[str, int]:
        if self.plan.states is None:
            return {}
        each = state_bytes(self.model, self.parallel, self.runtime)
        return {"states": self.plan.states.slots, "state_bytes": each}

    @property
    def _counted_layers(self) -> int:
        """Of drafts, each as large as the target's, for which its pool leaves room."""
        if self.own_draft is not None:
            return self.own_draft.counted_layers
        counts = self.runtime.speculative is not None and self.runtime.speculative.is_counted
        return self._draft_layers if counts else 0

    @property
    def _draft_layers(self) -> int:
        """Those that keep keys and values of their own."""
        speculative = self.runtime.speculative
        frozen = speculative is not None and speculative.algorithm == "FROZEN_KV_MTP"
        return 0 if frozen else self._num_drafts

    @property
    def _num_drafts(self) -> int:
        """On the last stage, whose hidden states they go by."""
        return num_drafts(self.runtime) if self.decoder.is_last else 0

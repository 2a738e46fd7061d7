"""What a hierarchical cache holds on the GPU: its tree comes behind the graphs, and this runtime has none."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from runtime.devices.base import Device
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.host_pool import HostPool, host_pool, knows_host_pool
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import PoolPlan
from runtime.start.options import StartOptions
from runtime.start.phases import PhaseRecorder


class Tiering:
    """The part of a model runner that keeps tokens in the host's memory, as far as a GPU sees it."""

    model: ModelConfig
    parallel: ParallelConfig
    runtime: RuntimeConfig
    device: Device
    options: StartOptions
    recorder: PhaseRecorder
    layers: Sequence[int]
    plan: PoolPlan

    def init_host_cache(self) -> None:
        cache, model, release = self.runtime.host_cache, self.model, self.runtime.release
        if cache is None or not self.options.as_sglang:
            return
        if not knows_host_pool(model, self.parallel, release):
            return
        with self.recorder.phase("host cache"):
            pool = host_pool(cache, self.plan, model, self.parallel, self.layers, release)
            within = cache.share is not None
            self.recorder.tell(
                host_cache_tokens=pool.tokens, host_cache_bytes=pool.bytes, host_cache_at_most=within
            )
            self._hold_host_cache(pool)

    def _hold_host_cache(self, pool: HostPool) -> None:
        self.device.claim(f"page tables of the host's memory:{pool.page_tables}")
        self.host_cache = []
        for name, size in pool.buffers():
            made = torch.zeros(size, dtype=torch.uint8, device=self.device.torch_device)
            self.device.label(made, f"SGLang's {name}")
            self.host_cache.append(made)

"""What SGLang keeps of adapters and of experts that move: this runtime has neither."""

from __future__ import annotations

import torch

from runtime.devices.base import Device
from runtime.forward.comm import Communicator
from runtime.models.decoder import Decoder
from runtime.server.adapter_pool import pool_of
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.start.options import StartOptions
from runtime.start.phases import PhaseRecorder


class Adapting:
    model: ModelConfig
    parallel: ParallelConfig
    runtime: RuntimeConfig
    device: Device
    comm: Communicator
    options: StartOptions
    recorder: PhaseRecorder
    decoder: Decoder

    def place_experts(self) -> None:
        """On every stage for all layers."""
        placement, moe = self.runtime.placement, self.model.moe
        self.places = []
        if placement is None or moe is None or not self.options.as_sglang:
            return
        for name, dtype, count in placement.tables(self.model.num_layers, moe, self.comm.size("moe_ep")):
            self.places.append(self._kept(name, getattr(torch, dtype), (count,)))

    def init_adapters(self) -> None:
        """Before what is left becomes the cache's. A head that is its embedding gets a matrix of its own for
        a moment, where adapters have one."""
        rank = self.comm.layout.tp_rank
        pool = pool_of(self.runtime.adapters, self.model, self.parallel, rank)
        if pool is None or not self.options.as_sglang:
            return
        with self.recorder.phase("adapters"):
            if "lm_head" in pool.adapters.names and self.model.tie_word_embeddings and self.decoder.embedding:
                torch.empty_like(self.decoder.embedding.weight)
            self.adapters = []
            for name, shape in pool.buffers():
                self.adapters.append(self._kept(f"{name} of adapters", self.decoder.build.dtype, shape))

    def _kept(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        made = torch.zeros(shape, dtype=dtype, device=self.device.torch_device)
        self.device.label(made, f"SGLang's {name}")
        return made

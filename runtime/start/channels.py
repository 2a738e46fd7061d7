"""The communicators of one rank, opened and counted at the steps where a server opens them."""

from __future__ import annotations

import torch

from runtime.devices.base import Device
from runtime.forward.comm import Communicator
from runtime.server.channels import (
    eager_groups,
    groups_of_torch,
    own_groups,
    shared_buffer,
    shared_pointers,
)
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.parallel_config import ParallelConfig

COLLECTIVE_GROUPS = ("tp", "attn_tp", "attn_dp", "moe_tp", "moe_ep")


class Channels:
    """`as_sglang` holds what only SGLang's own all-reduce needs."""

    def __init__(
        self,
        model: ModelConfig,
        parallel: ParallelConfig,
        runtime: RuntimeConfig,
        device: Device,
        as_sglang: bool,
    ) -> None:
        self._model, self._parallel, self._runtime = model, parallel, runtime
        self._device, self._as_sglang = device, as_sglang
        self._pointers: torch.Tensor | None = None
        self._waiting = list(groups_of_torch(model, parallel))

    def open(self, comm: Communicator) -> None:
        """What is there before the weights. NCCL takes its buffers at the first collective of a group."""
        groups = own_groups(self._parallel)
        if not groups:
            return
        device = self._device
        device.claim("torch kernels")
        device.claim("nccl")
        for ranks in groups:
            device.claim(f"nccl:{ranks}")
        shared, pointers = (of(self._parallel, self._runtime) for of in (shared_buffer, shared_pointers))
        if shared:
            device.claim(f"custom all-reduce:{shared}")
        if pointers and self._as_sglang:
            self._pointers = torch.zeros(pointers, dtype=torch.int64, device=device.torch_device)
            device.label(self._pointers, "SGLang's graph_params")
        one = torch.zeros(1, device=device.torch_device)
        for group in COLLECTIVE_GROUPS:
            comm.all_reduce(one, group)

    @property
    def has_own(self) -> bool:
        return bool(own_groups(self._parallel))

    @property
    def kernels_take_room(self) -> bool:
        """Triton's take none, and what NCCL's have taken serves all: starts that were measured say so."""
        runtime = self._runtime
        if runtime.by_own_kernels:
            return True
        tunes_or_unread = not runtime.disable_autotune or runtime.attention_backend != "triton"
        return tunes_or_unread and not self.has_own

    def carry_eager(self, rows: int) -> None:
        """The first forward outside graphs."""
        self.open_waiting()
        for ranks in eager_groups(self._model, self._parallel, self._runtime, rows):
            self._device.claim(f"nccl:{ranks}")

    def open_waiting(self) -> None:
        """Before the first forward, captured or not."""
        while self._waiting:
            self._device.claim(f"nccl:{self._waiting.pop()}")

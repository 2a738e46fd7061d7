"""The encoder beside a multimodal model's language model: its weights, for their memory. It never runs."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from runtime.forward.comm import Communicator
from runtime.forward.kv_packing import FP8
from runtime.layers.loading import fill_dummy
from runtime.server.encoders.weight import EncoderWeight


class EncoderWeights(nn.Module):
    def __init__(
        self,
        weights: Iterable[EncoderWeight],
        comm: Communicator,
        dtype: torch.dtype,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        super().__init__()
        is_first = comm.layout.pp_rank == 0
        for weight in weights:
            if weight.on_first_stage_alone and not is_first:
                continue
            shape = weight.of_rank(comm.size(weight.group), comm.size("tp"))
            for layer in range(weight.layers):
                held = torch.float32 if weight.in_fp32 else FP8 if weight.in_fp8 else dtype
                tensor = torch.empty(shape, dtype=held, device=device)
                fill_dummy(weight.name, tensor, seed)
                name = f"{weight.name}.{layer}".replace(".", "_")
                self.register_parameter(name, nn.Parameter(tensor, requires_grad=False))

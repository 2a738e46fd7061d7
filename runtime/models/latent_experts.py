"""Experts between two matrices of their own, the second of which is given their sum over all ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from runtime.forward.dp_attention import dp_buffer_len, own_rows
from runtime.layers.linear import Part
from runtime.layers.loading import Piece
from runtime.layers.quantization import PLAIN
from runtime.models.build import Build
from runtime.models.mlp import MoELayer
from runtime.moe.backends import MoEBackend
from runtime.moe.dispatch import Dispatcher
from runtime.moe.dispatcher import StandardDispatcher
from runtime.server.errors import Unsupported


class LatentExperts(MoELayer):
    """Kimi K3's: srt/models/kimi_k3.py. What shared experts answer is summed apart."""

    narrowing, widening = "routed_expert_down_proj", "routed_expert_up_proj"

    def __init__(self, build: Build, name: str, dispatcher: Dispatcher, backend: MoEBackend) -> None:
        if not isinstance(dispatcher, StandardDispatcher):
            raise Unsupported(
                f"--moe-a2a-backend {build.runtime.moe_a2a_backend}: this runtime sums latents on every rank"
            )
        super().__init__(build, name, dispatcher, backend)
        moe, hidden = build.model.moe, slice(0, build.model.hidden_size)
        assert moe is not None and moe.latent_size is not None
        latent = slice(0, moe.latent_size)
        self.down = build.linear([Part(f"{name}.{self.narrowing}", latent)], hidden, scheme=PLAIN)
        self.up = build.linear([Part(f"{name}.{self.widening}", hidden)], latent, scheme=PLAIN)
        norm = f"{name}.routed_expert_norm"
        self.latent_norm = build.norm(norm, moe.latent_size) if moe.norms_latents else None

    def forward(self, x: torch.Tensor, tokens: torch.Tensor | None = None) -> torch.Tensor:
        rows, topk = self.dispatcher.dispatch(x, self._route)
        latents = self.comm.all_reduce(self.backend.forward(self.narrowed(rows), topk, self.weights), "tp")
        if self.latent_norm is not None:
            self.latent_norm.in_place(latents)
        answer = self.up(latents)
        if self.shared is not None:
            answer.add_(self.comm.all_reduce(self.shared(rows), "tp"))
        counts = dp_buffer_len().global_num_tokens_cpu
        if counts is None or len(counts) == 1:
            return answer
        return own_rows(answer, counts, x.shape[0], self.comm)

    def narrowed(self, rows: torch.Tensor) -> torch.Tensor:
        return self.down(rows)

    def pieces(self) -> Iterator[Piece]:
        yield from super().pieces()
        for part in (self.down, self.up, self.latent_norm):
            if part is not None:
                yield from part.pieces()

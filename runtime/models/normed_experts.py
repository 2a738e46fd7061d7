"""Experts of fewer columns, each of whose answers is normed before it is added: srt/models/muse_spark.py."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from runtime.layers.loading import Piece
from runtime.models.build import Build
from runtime.models.latent_experts import LatentExperts
from runtime.moe.backends import MoEBackend
from runtime.moe.dispatch import Dispatcher
from runtime.server.errors import Unsupported


class NormedExperts(LatentExperts):
    narrowing, widening = "pre_expert_proj", "post_expert_proj"

    def __init__(self, build: Build, name: str, dispatcher: Dispatcher, backend: MoEBackend) -> None:
        if build.comm.size("moe_tp") > 1:
            raise Unsupported(
                "experts whose answers are normed are whole on their rank: --ep-size is --tp-size"
            )
        super().__init__(build, name, dispatcher, backend)
        moe = build.model.moe
        assert moe is not None and moe.latent_size is not None and moe.answer_eps is not None
        self.entry_norm = build.norm(f"{name}.pre_expert_norm", moe.latent_size)
        self.answer_norm = build.norm(f"{name}.experts.post_expert_norm", moe.latent_size, moe.answer_eps)

    def finalize(self) -> None:
        super().finalize()
        self.weights.answer_norm = (self.answer_norm.weight, self.answer_norm.eps)

    def narrowed(self, rows: torch.Tensor) -> torch.Tensor:
        return self.entry_norm.in_place(super().narrowed(rows))

    def pieces(self) -> Iterator[Piece]:
        yield from super().pieces()
        for norm in (self.entry_norm, self.answer_norm):
            yield from norm.pieces()

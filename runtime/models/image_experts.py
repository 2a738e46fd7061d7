"""As many experts again, for tokens that are no text: no start has such a token, and so none asks them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from runtime.layers.loading import Piece
from runtime.models.build import Build
from runtime.models.experts import Experts
from runtime.moe.half_router import HalfRouter


class ImageExperts(nn.Module):
    def __init__(self, build: Build, name: str) -> None:
        super().__init__()
        model, moe = build.model, build.model.moe
        assert moe is not None and moe.image_intermediate_size is not None
        own = replace(moe, intermediate_size=moe.image_intermediate_size, image_intermediate_size=None)
        self.router = HalfRouter(name, model.hidden_size, own, build.dtype, build.device, is_second=True)
        build = replace(build, model=replace(model, moe=own))
        self.experts = Experts(build, name, behind=moe.num_experts)

    def pieces(self) -> Iterator[Piece]:
        yield from self.router.pieces()
        yield from self.experts.pieces()

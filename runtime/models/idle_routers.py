"""Further routers over the same experts, for tokens that are no text: no start has such a token, and so none
asks them."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from runtime.layers.loading import Piece
from runtime.models.build import Build
from runtime.moe.router import Router
from runtime.server.call_rules import router_in_fp32


class IdleRouters(nn.Module):
    def __init__(self, build: Build, name: str) -> None:
        super().__init__()
        model, moe = build.model, build.model.moe
        assert moe is not None
        wide, sizes = (
            router_in_fp32(model, build.runtime),
            (model.hidden_size, moe, build.dtype, build.device),
        )
        named = [(f"{name}.{one}", f"{name}.{one}.weight") for one in moe.idle_routers]
        self._routers = [Router(names, *sizes, wide=wide) for names in named]
        self.routers = nn.ModuleList(self._routers)

    def pieces(self) -> Iterator[Piece]:
        for router in self._routers:
            yield from router.pieces()

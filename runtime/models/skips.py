"""What layers were given is kept, and mixed into what later ones are given (srt/models/solar.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from runtime.models.layer import StageState
from runtime.server.errors import Unsupported
from runtime.server.skips import SkipsConfig


class Skips:
    """Of one forward: of most models there are none."""

    def __init__(self, config: SkipsConfig | None, layers: Sequence[int]) -> None:
        """`layers` are those of a stage, which has nothing that another kept."""
        self.config = config or SkipsConfig((), (), 0)
        for keeps, mixes in zip(self.config.keeps, self.config.mixes, strict=True):
            for layer in {*mixes} & {*layers}:
                if not any(one < layer for one in {*keeps} & {*layers}):
                    raise Unsupported(f"layer {layer} is given a share of what another stage kept")
        self.kept: list[StageState | None] = [None] * len(self.config.keeps)

    def given(self, layer: int, state: StageState) -> StageState:
        """A layer may be given what it keeps itself. The last answer and its residual are mixed apart."""
        for way, listed in enumerate(self.config.keeps):
            if layer in listed:
                rest = None if state.residual is None else state.residual.clone()
                self.kept[way] = StageState(state.hidden.clone(), rest)
        for way, listed in enumerate(self.config.mixes):
            kept = self.kept[way]
            if layer not in listed:
                continue
            assert kept is not None and kept.residual is not None and state.residual is not None
            hidden = self._mixed(kept.hidden, state.hidden)
            state = replace(state, hidden=hidden, residual=self._mixed(kept.residual, state.residual))
        return state

    def _mixed(self, kept: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        share = self.config.share
        return kept * share + own * (1 - share)

"""Weights of layers that lie in the host's memory, and on the GPU while their layer runs.

OffloaderV1 of srt/utils/offloader.py, and device_loading_context of srt/model_loader, as a GPU sees them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from runtime.devices.base import Device
from runtime.layers.linear import Linear
from runtime.models.experts import Experts
from runtime.models.layer import DecoderLayer
from runtime.server.host_memory import page_tables
from runtime.server.offloading import Walk


class HostWeights:
    """`budget`: once as many bytes are away, nothing more is taken."""

    def __init__(self, device: Device, budget: int, walk: Walk) -> None:
        self.device, self.budget, self.walk = device, budget, walk
        self.bytes = self.pinned = 0
        self._away: set[int] = set()

    @property
    def page_tables(self) -> int:
        """On the GPU."""
        return page_tables(self.pinned)

    def take(self, layer: DecoderLayer) -> None:
        """As soon as it is made, before the next one is."""
        taken = [*self._taken(layer)]
        layer.away = tuple(one.nbytes for one in taken)
        if not taken:
            return
        run = layer.forward

        def forward(*given: Any, **told: Any) -> Any:
            # A graph's nodes that copy from the host take nothing, as was measured.
            copies = [torch.empty_like(one) for one in taken]
            answer = run(*given, **told)
            del copies
            return answer

        layer.forward = forward  # type: ignore[method-assign]

    def _taken(self, layer: DecoderLayer) -> Iterator[nn.Parameter]:
        for parameter in _in_order(layer, self.walk):
            if self.bytes >= self.budget:
                return
            self.bytes += parameter.nbytes
            self.pinned += _rounded(parameter.nbytes)
            self.device.leave(parameter)
            self._away.add(_place(parameter))
            yield parameter

    def visit(self, layers: nn.Module) -> None:
        """Loaded, each matrix is on the GPU for a moment, to be made into what its kernel reads."""
        for module in layers.modules():
            if isinstance(module, (Linear, Experts)):
                copies = [torch.empty_like(one) for one in module.parameters() if _place(one) in self._away]
                del copies


def _in_order(layer: DecoderLayer, walk: Walk) -> list[nn.Parameter]:
    """Those of the first part that a name begins with, as they are made here."""
    named = [(name, one) for name, one in layer.named_parameters() if one.nbytes]
    places = {name: next(at for at, part in enumerate(walk) if name.startswith(part)) for name, _ in named}
    return [one for _, one in sorted(named, key=lambda each: places[each[0]])]


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _rounded(size: int) -> int:
    """torch asks for pinned memory in powers of two: torch.cuda.host_memory_stats of 2.11."""
    return 1 << (size - 1).bit_length()

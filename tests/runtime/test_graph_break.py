"""What runs between the parts of a graph takes its memory in the warm-ups, and none in the graph."""

from __future__ import annotations

import torch

from runtime.devices.graph_break import outside_graph
from runtime.devices.meta import Meta
from runtime.server.units import MIB
from tests.runtime.starts import BARE


def _capture(is_outside: bool) -> Meta:
    device = Meta(1 << 30, constants=BARE)

    def run() -> torch.Tensor:
        out = torch.empty(32 * MIB, dtype=torch.uint8, device="meta")
        if not is_outside:
            out.copy_(torch.empty(64 * MIB, dtype=torch.uint8, device="meta")[: 32 * MIB])
            return out
        with outside_graph():
            out.copy_(torch.empty(64 * MIB, dtype=torch.uint8, device="meta")[: 32 * MIB])
        return out

    with device.active():
        device.reset_peak()
        graph = device.capture(run, device.graph_pool())
        device.empty_cache()
        assert graph.outputs is not None
    return device


def test_a_warm_up_takes_it_and_a_graph_does_not() -> None:
    inside, outside = _capture(False), _capture(True)
    assert outside.memory().peak_allocated == 96 * MIB
    assert inside.memory().reserved - outside.memory().reserved == 64 * MIB


def test_without_a_prediction_nobody_is_told() -> None:
    with outside_graph():
        assert torch.ones(2).sum() == 2

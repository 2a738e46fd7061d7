"""Compares the allocator model with torch's own on this GPU, step by step."""

from __future__ import annotations

from functools import partial

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from benchmarks.allocator_model import compare, compare_oom
from runtime.devices.meta import Meta
from runtime.server.units import MIB


@pytest.fixture(autouse=True)
def _empty() -> None:
    torch.cuda.empty_cache()
    if torch.cuda.memory_allocated():
        pytest.skip("another test of this process still holds GPU memory")


@pytest.mark.parametrize("seed", [10, 11])
def test_every_step_of_the_model_equals_torchs(seed: int) -> None:
    outcome = compare(steps=3000, seed=seed, streams=2)
    assert outcome.addresses_equal == outcome.measured_equal == 3000, outcome.first_divergence


def test_the_predicted_error_has_torchs_numbers() -> None:
    (tried, total, free, _, *rest), (*predicted,) = compare_oom()["numbers"]
    assert [tried, total, free, *rest] == [*predicted[:3], *predicted[4:]]


@pytest.mark.parametrize("mibs", [range(8, 120, 8), range(112, 0, -8)], ids=["ascending", "descending"])
def test_graph_pools_grow_alike(mibs: range) -> None:
    assert _captured_for_real(mibs) == _captured_in_the_model(mibs)


def _captured_for_real(mibs: range) -> int:
    """Return the bytes reserved for one pool of graphs, each of which needs one block for a while."""
    before, stream = torch.cuda.memory_reserved(), torch.cuda.Stream()
    pool, graphs = torch.cuda.graph_pool_handle(), []
    for mib in mibs:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            torch.empty(mib * MIB, dtype=torch.uint8, device="cuda").fill_(1)
        graphs.append(graph)
    return torch.cuda.memory_reserved() - before


def _captured_in_the_model(mibs: range) -> int:
    device = Meta(1 << 40)
    with device.active():
        pool = device.graph_pool()
        for mib in mibs:
            device.capture(partial(_fill_a_block, mib), pool, warm_ups=0)
    return device.memory().reserved


def _fill_a_block(mib: int) -> None:
    torch.empty(mib * MIB, dtype=torch.uint8, device="meta").fill_(1)

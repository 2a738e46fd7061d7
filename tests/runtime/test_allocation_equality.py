"""A virtual rank allocates what a real one does: the same sizes, by the same ops, in the same phases."""

from __future__ import annotations

import pytest
import torch

from runtime.decoder.decoder import Decoder
from runtime.forward.batch import dummy_decode_batch, dummy_extend_batch
from runtime.forward.comm import Communicator, VirtualCommunicator
from runtime.server.config import ModelConfig
from runtime.server.parallel import ParallelConfig, stage_layers
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.tracker import AllocationTracker
from tests.runtime.configs import model_of
from tests.runtime.families import config_json, make_reference
from tests.runtime.generation import make_pool, make_runtime
from tests.runtime.ranks import Ranks

CPU = torch.device("cpu")
Events = list[tuple[str, int, str]]

LAYOUTS = {
    "tp4": (ParallelConfig(tp=4), "none"),
    "pp2 tp2": (ParallelConfig(tp=2, pp=2), "none"),
    "tp4 ep2": (ParallelConfig(tp=4, ep=2), "none"),
    "tp4 dp4": (ParallelConfig(tp=4, dp=4, enable_dp_attention=True), "none"),
    "tp4 dp2": (ParallelConfig(tp=4, dp=2, enable_dp_attention=True), "none"),
    "tp4 dp4 ep4": (ParallelConfig(tp=4, dp=4, ep=4, enable_dp_attention=True), "none"),
    "tp4 dp4 ep4 a2a": (ParallelConfig(tp=4, dp=4, ep=4, enable_dp_attention=True), "flashinfer"),
    "tp4 dp2 ep4 a2a": (ParallelConfig(tp=4, dp=2, ep=4, enable_dp_attention=True), "flashinfer"),
}


def _record(comm: Communicator, model: ModelConfig, parallel: ParallelConfig, a2a: str) -> Events:
    """Weights, a prefill, and a decode."""
    runtime = make_runtime(moe_a2a_backend=a2a, prefill_tokens=32, max_running_requests=4)
    tracker = AllocationTracker(CachingAllocator(), "cpu", log=True)
    with tracker:
        tracker.phase = "weights"
        layers = stage_layers(model.num_layers, parallel, comm.layout.pp_rank)
        decoder = Decoder(model, runtime, comm, CPU, layers)
        decoder.load_dummy()
        tracker.phase = "kv pool"
        pool = make_pool(model, comm, layers, torch.float32, CPU)
        for mode, batch in (
            ("extend", dummy_extend_batch(8, 4, CPU)),
            ("decode", dummy_decode_batch(2, 1, CPU)),
        ):
            tracker.phase = mode
            decoder.run_stage(batch, pool)
    assert tracker.log is not None
    return [(entry.phase, entry.nbytes, entry.op) for entry in tracker.log]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("family", ["qwen3_moe", "glm_moe_dsa"])
def test_rank_0_allocates_alike_with_and_without_peers(ranks: Ranks, family: str, layout: str) -> None:
    parallel, a2a = LAYOUTS[layout]
    model = model_of(config_json(make_reference(family)))
    real = ranks.run(parallel, _record, model, parallel, a2a)[0]
    virtual = _record(VirtualCommunicator(parallel, 0), model, parallel, a2a)
    assert {phase for phase, _, _ in real} == {"weights", "kv pool", "extend", "decode"}
    assert real == virtual


def test_later_stages_and_ranks_allocate_alike_with_and_without_peers(ranks: Ranks) -> None:
    parallel = ParallelConfig(tp=2, pp=2)
    model = model_of(config_json(make_reference("deepseek_v3")))
    real = ranks.run(parallel, _record, model, parallel, "none")
    for rank in range(1, 4):
        assert real[rank] == _record(VirtualCommunicator(parallel, rank), model, parallel, "none")

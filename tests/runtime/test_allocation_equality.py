"""A virtual rank allocates what a real one does: the same sizes, by the same ops, in the same phases."""

from pathlib import Path

import pytest
import torch

from runtime.decoder.decoder import Decoder
from runtime.forward.comm import Communicator, VirtualCommunicator
from runtime.forward.dp_attention import PeerRows, plan_dp_tokens
from runtime.models.known import model_config
from runtime.server.parallel import ParallelConfig, stage_layers
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.tracker import AllocationTracker
from sgl_tune.deployment.deployment import find_model
from tests.runtime.batches import make_decode_batch, make_extend_batch
from tests.runtime.checkpoints import load
from tests.runtime.families import make_reference, prompts, save
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


def _record(comm: Communicator, folder: Path, parallel: ParallelConfig, a2a: str) -> Events:
    """Weights, a prefill of uneven lengths over the DP ranks, and a decode."""
    runtime = make_runtime(moe_a2a_backend=a2a, prefill_tokens=32, max_running_requests=4)
    tracker = AllocationTracker(CachingAllocator(), "cpu", log=True)
    with tracker:
        tracker.phase = "weights"
        model = model_config(find_model(str(folder), {}).checkpoint.quantized)
        layers = stage_layers(model.num_layers, parallel, comm.layout.pp_rank)
        decoder = Decoder(model, runtime, comm, CPU, layers)
        load(decoder, folder)
        tracker.phase = "kv pool"
        pool = make_pool(model, comm, layers, torch.float32, CPU)
        width, rank = parallel.attn_dp, comm.layout.attn_dp_rank
        counts = [8 - 2 * number for number in range(width)]
        for mode in ("extend", "decode"):
            tracker.phase = mode
            rows = counts if mode == "extend" else [1] * width
            if mode == "extend":
                batch = make_extend_batch(prompts(rows[rank]), [1], pool)
            else:
                batch = make_decode_batch([1], [1], pool, [counts[rank]])
            peers = PeerRows(rows, [1] * width, mode == "extend")
            told = {"moe_a2a_backend": a2a, "peers": peers, "dp_rank": rank, "device": CPU}
            dp = plan_dp_tokens(rows[rank], "eager", parallel, **told)
            decoder.run_stage(batch.with_dp(dp), pool)
    assert tracker.log is not None
    return [(entry.phase, entry.nbytes, entry.op) for entry in tracker.log]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("family", ["qwen3_moe", "glm_moe_dsa"])
def test_rank_0_allocates_alike_without_peers(ranks: Ranks, tmp_path: Path, family: str, layout: str) -> None:
    parallel, a2a = LAYOUTS[layout]
    folder = save(make_reference(family), tmp_path)
    real = ranks.run(parallel, _record, folder, parallel, a2a)[0]
    virtual = _record(VirtualCommunicator(parallel, 0), folder, parallel, a2a)
    assert {phase for phase, _, _ in real} == {"weights", "kv pool", "extend", "decode"}
    assert real == virtual


def test_later_stages_and_ranks_allocate_alike_with_and_without_peers(ranks: Ranks, tmp_path: Path) -> None:
    parallel = ParallelConfig(tp=2, pp=2)
    folder = save(make_reference("deepseek_v3"), tmp_path)
    real = ranks.run(parallel, _record, folder, parallel, "none")
    for rank in range(1, 4):
        assert real[rank] == _record(VirtualCommunicator(parallel, rank), folder, parallel, "none")

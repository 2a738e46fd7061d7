"""A start on this GPU: it serves what eager forwards would, and its memory is what was predicted."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from runtime.devices.cuda import Cuda
from runtime.server.choices.graphs import decode_graph_sizes
from runtime.server.config import ModelConfig
from runtime.server.units import MIB
from runtime.start.model_runner import ModelRunner
from tests.runtime.batches import make_decode_batch, make_extend_batch
from tests.runtime.starts import eager_logits, make_preset, make_runner, make_runtime, replayed_logits


def _small() -> ModelConfig:
    """Return Qwen3-30B-A3B cut to three layers, with contexts of which the pool holds three."""
    model = make_preset("Qwen3-30B-A3B")
    kinds, attention = model.layer_kinds[:3], model.attention_kinds[:3]
    return replace(model, layer_kinds=kinds, attention_kinds=attention, max_position=1024)


def _start(device: Cuda) -> ModelRunner:
    runtime = make_runtime(
        dtype="bfloat16",
        moe_runner_backend="flashinfer_cutlass",
        prefill_tokens=512,
        max_running_requests=32,
        decode_graphs=decode_graph_sizes(32),
        autotune_cached=True,
    )
    runner = make_runner(_small(), device, runtime=runtime, kv_tokens=8192)
    runner.start()
    return runner


@pytest.fixture(scope="module")
def started() -> ModelRunner:
    return _start(Cuda())


def test_graphs_answer_as_eager_forwards_do(started: ModelRunner) -> None:
    prompts = [[(7 * n + 3 * i) % 1000 for i in range(40 + n)] for n in range(3)]
    batch = make_extend_batch(prompts, (1, 2, 3), started.kv)
    replayed, eager = replayed_logits(started, batch), eager_logits(started, batch)
    torch.testing.assert_close(replayed, eager, atol=0.05, rtol=0.05)
    for step in range(3):
        lens = [len(prompt) + step for prompt in prompts]
        decode = make_decode_batch([1, 2, 3], (1, 2, 3), started.kv, lens)
        replayed, eager = replayed_logits(started, decode), eager_logits(started, decode)
        torch.testing.assert_close(replayed, eager, atol=0.05, rtol=0.05)


def test_every_phase_is_predicted(tmp_path: Path) -> None:
    """Runs in a process of its own, because memory of earlier tests would count as the start's."""
    record = tmp_path / "start.json"
    sizes = ["--layers", "3", "--chunked-prefill-size", "512", "--max-running-requests", "32"]
    command = [sys.executable, "-m", "benchmarks.startup_memory", *sizes, "--cuda-graph-max-bs", "32"]
    subprocess.run([*command, "--out", str(record)], check=True, timeout=300)
    phases = json.loads(record.read_text())["phases"]
    assert len(phases) > 5
    for phase in phases:
        assert phase["within"], phase["phase"]
        measured, predicted = phase["measured"], phase["predicted"]
        kept = predicted["persistent_bytes"] - measured["persistent_bytes"]
        # The pool takes what the rest leaves, which differs from host to host.
        assert abs(kept) <= max(16 * MIB, 0.0005 * measured["persistent_bytes"]), phase["phase"]


def test_history_names_the_largest() -> None:
    device = Cuda(history=True)
    with device.active():
        device.reset_peak()
        kept = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
        gone = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")
        del gone
        later = torch.empty(20 * MIB, dtype=torch.uint8, device="cuda")
        largest = device.largest_at_peak(200)
    sizes = [held.bytes for held in largest]
    assert 50 * MIB in sizes
    assert 30 * MIB in sizes
    del kept, later

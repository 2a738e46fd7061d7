"""A start on this GPU: its memory is what was predicted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from runtime.devices.cuda import Cuda
from runtime.server.units import MIB


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

"""Triton's kernels on a CPU, where Triton is: it decides when it is imported that it interprets them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

INTERPRETED = (
    *("interpreted_blocks", "interpreted_scan", "interpreted_scores", "interpreted_snapshots"),
    *("interpreted_streams", "interpreted_both_ways"),
)


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("name", INTERPRETED)
def test_kernels_are_interpreted(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", str(Path(__file__).with_name(f"{name}.py"))]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout

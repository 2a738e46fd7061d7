"""A kernel is one call for who watches, and allocates alike on every device."""

import subprocess
import sys

import pytest
import torch

from runtime.layers.mlp import silu_and_mul
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.kernel import in_place, kernel
from runtime.simulate.tracker import AllocationTracker


@kernel(in_place)
def _twice(x: torch.Tensor) -> None:
    x.copy_(silu_and_mul(torch.cat([x, x], dim=-1)))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_its_result_is_all_that_is_seen(device: str) -> None:
    x = torch.ones(2, 4, device=device)
    tracker = AllocationTracker(CachingAllocator(), device, log=True)
    with tracker:
        answer = silu_and_mul(x)
        _twice(x)
    assert answer.shape == (2, 2) and tracker.kernels == 2
    assert tracker.log is not None and [one.what for one in tracker.log] == ["silu_and_mul [2, 2] float32"]


def test_an_error_inside_leaves_no_mode() -> None:
    tracker = AllocationTracker(CachingAllocator(), "cpu", log=True)
    with tracker:
        with pytest.raises(RuntimeError):
            silu_and_mul(torch.ones(()))
        torch.ones(1)
    assert tracker.log is not None and [one.op for one in tracker.log] == ["ones", "ones"]


def test_unwatched_it_is_the_reference() -> None:
    x = torch.tensor([[1.0, 2.0]])
    torch.testing.assert_close(silu_and_mul(x), torch.nn.functional.silu(x[:, :1]) * 2)


REHEARSAL = """
import sys
import torch
from runtime.devices.cpu import Cpu
from runtime.layers.mlp import silu_and_mul
from runtime.server.parallel import ParallelConfig
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.tracker import AllocationTracker
from runtime.start.rehearsal import Rehearsal
from tests.runtime.configs import runtime_config
from tests.runtime.starts import make_preset
model = make_preset("demo-moe")
Rehearsal(model, ParallelConfig(), runtime_config(moe_runner_backend="flashinfer_cutlass"), Cpu()).forward(2)
with AllocationTracker(CachingAllocator(1 << 30), "cpu"):
    silu_and_mul(torch.ones(2, 4))
sys.exit("torch._dynamo" in sys.modules)
"""


def test_neither_a_rehearsal_nor_who_counts_loads_torch_s_compiler() -> None:
    """Loading takes seconds. `torch.library.custom_op` causes it, and so does a plain dispatch mode."""
    assert subprocess.run([sys.executable, "-c", REHEARSAL], timeout=120).returncode == 0

"""The kernels of Kimi K3's residuals and gates, interpreted on a CPU: what the CPU's own say."""

from __future__ import annotations

import pytest
import torch

from runtime.layers import kernels, snapshot_kernels, snapshot_ops
from runtime.layers.mlp import situ


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
@pytest.mark.parametrize(("count", "width"), [(1, 40), (3, 700), (8, 1024)])
def test_residuals_are_mixed_as_on_a_cpu(count: int, width: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    kept = torch.randn(5, 9, width).to(dtype)[:, : count + 1]
    last, scored = torch.randn(5, width).to(dtype), torch.randn(width)
    here, there = (of.mixed(kept, last, count, scored, 1e-5) for of in (snapshot_ops, snapshot_kernels))
    torch.testing.assert_close(there, here, atol=2e-3 if dtype == torch.float16 else 1e-5, rtol=1e-3)


@pytest.mark.parametrize("ups", [0.0, 0.7, 25.0])
def test_gates_open_as_on_a_cpu(ups: float) -> None:
    torch.manual_seed(0)
    x = 4 * torch.randn(7, 2 * 1100)
    torch.testing.assert_close(kernels.situ(x, 4.0, ups), situ(x, 4.0, ups), atol=1e-5, rtol=1e-5)

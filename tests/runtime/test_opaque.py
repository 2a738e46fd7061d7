"""Our kernels are one op each for who watches, and plain functions for who does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from runtime.layers.mlp import silu_and_mul
from runtime.layers.opaque import opaque_op


class Watching(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_dispatch_mode_sees_one_op() -> None:
    x = torch.ones(2, 4)
    with Watching() as watching:
        silu_and_mul(x)
    assert watching.seen == ["sgl_tune.silu_and_mul.default"]


def test_on_meta_the_fake_answers() -> None:
    assert silu_and_mul(torch.empty(2, 4, device="meta")).shape == (2, 2)


def test_a_compiled_function_keeps_it_whole() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    x = torch.ones(2, 4)
    with torch.inference_mode():
        compiled = torch.compile(lambda x: silu_and_mul(x) + 1, backend=keep, fullgraph=True)
        assert torch.equal(compiled(x), silu_and_mul(x) + 1)
    assert any("silu_and_mul" in str(node.target) for node in graphs[0].graph.nodes)


@pytest.mark.parametrize("keyword", [False, True])
def test_unwatched_it_is_the_kernel_itself(keyword: bool) -> None:
    called: list[torch.Tensor] = []

    @opaque_op(f"sgl_tune_tests::note_{keyword}".lower(), mutates_args=())
    def note(x: torch.Tensor) -> torch.Tensor:
        called.append(x)
        return x + 1

    x = torch.ones(1)
    assert (note(x=x) if keyword else note(x)).item() == 2
    assert called[0] is x


REHEARSAL = """
import json, sys
from pathlib import Path
import torch
from runtime.devices.cpu import Cpu
from runtime.layers.mlp import silu_and_mul
from runtime.server.config import RuntimeConfig
from runtime.server.parallel_config import ParallelConfig
from tests.runtime.configs import model_of
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.tracker import AllocationTracker
from runtime.start.rehearsal import Rehearsal
from tests.runtime.configs import runtime_config
model = model_of(json.loads(Path(sys.argv[1]).read_text())["config"])
Rehearsal(model, ParallelConfig(), runtime_config(moe_runner_backend="flashinfer_cutlass"), Cpu()).forward(2)
with AllocationTracker(CachingAllocator(1 << 30), "cpu"):
    silu_and_mul(torch.ones(2, 4))
sys.exit("torch._dynamo" in sys.modules)
"""


def test_neither_a_rehearsal_nor_who_counts_loads_torch_s_compiler() -> None:
    """Which takes seconds: a `torch.library.custom_op` would, and a dispatch mode that hides from it."""
    preset = Path(__file__).parents[2] / "sgl_tune/presets/models/demo-moe.json"
    assert subprocess.run([sys.executable, "-c", REHEARSAL, str(preset)], timeout=120).returncode == 0

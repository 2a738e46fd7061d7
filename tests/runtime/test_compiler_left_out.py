"""A prediction imports no compiler of torch's, and who compiles after it has all of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PREDICTED = """
import sys
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.memory.predict import predict
from sgl_tune.memory.start import starts_of
flags = ServerFlags(model_path="demo-moe", gpu="l40s", chunked_prefill_size=64, cuda_graph_max_bs=2)
(start,) = starts_of(resolve_deployment(flags, environ={}), "distinct")
assert predict(start).verdict == "fits"
import torch
"""
LEFT_OUT = """
import sys
import torch
from runtime.simulate.compiler import leave_compiler_out
leave_compiler_out()
assert torch.arange(3, device="meta").shape == (3,)
"""
AWAY = """
assert "torch._dynamo.symbolic_convert" not in sys.modules
"""
BACK = """
assert type(sys.modules["torch._dynamo"]).__name__ == "module"
"""


@pytest.mark.parametrize(
    "words",
    [
        (
            PREDICTED,
            AWAY,
            'assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item() == 2',
        ),
        (LEFT_OUT, AWAY, "from torch._dynamo.utils import counters"),
        (
            "from importlib.util import find_spec",
            *(LEFT_OUT, "assert find_spec('torch._dynamo') is not None", AWAY),
            "import torch._dynamo\nassert torch._dynamo.config.cache_size_limit > 0",
            "assert not hasattr(torch._dynamo, 'no_such_thing')",
        ),
    ],
    ids=["who compiles", "who asks for a module of it", "who asks for a setting"],
)
def test_it_is_there_for_who_wants_it(words: tuple[str, ...]) -> None:
    program = "\n".join((*words, BACK))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()

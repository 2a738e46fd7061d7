"""A prediction imports no compiler of torch's, and who compiles after it has all of it."""

import subprocess
import sys

PREDICTED = """
import os
import sys
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.memory.core.predict import predict
from sgl_tune.memory.core.start import starts_of
flags = ServerFlags.of(model_path="demo-moe", gpu="l40s", chunked_prefill_size=64, cuda_graph_max_bs=2)
(start,) = starts_of(resolve_deployment(flags), "distinct")
assert predict(start).verdict == "fits"
import torch
assert "torch._dynamo.symbolic_convert" not in sys.modules
"""
# Each by a copy of the process that predicted.
ASKED = """
child = os.fork()
if child == 0:
    {asked}
    assert type(sys.modules["torch._dynamo"]).__name__ == "module"
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, {asked!r}
"""
COMPILES = 'assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item() == 2'
A_MODULE = "from torch._dynamo.utils import counters"
A_SETTING = (
    "from importlib.util import find_spec; assert find_spec('torch._dynamo') is not None; "
    "assert 'torch._dynamo.symbolic_convert' not in sys.modules; "
    "import torch._dynamo; assert torch._dynamo.config.cache_size_limit > 0; "
    "assert not hasattr(torch._dynamo, 'no_such_thing')"
)


def test_the_compiler_that_was_left_out_loads_at_its_first_use() -> None:
    asked = [ASKED.format(asked=one) for one in (COMPILES, A_MODULE, A_SETTING)]
    program = "".join((PREDICTED, *asked))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr.decode()

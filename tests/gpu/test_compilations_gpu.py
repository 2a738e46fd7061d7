"""Triton's compilations are counted once: a kernel that its store holds is loaded, and does not count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
WORK = """
import json, torch, triton, triton.language as tl
from sgl_tune.warm.compilations import counted

@triton.jit
def double(x, n: tl.constexpr):
    at = tl.arange(0, n)
    tl.store(x + at, tl.load(x + at) * 2)

x = torch.ones(64, 128, device="cuda")
with counted() as seen:
    double[(1,)](x, 128)
    torch.cuda.synchronize()
print(json.dumps([list(seen.triton), seen.of_a_server]))
"""


def test_a_kernel_counts_when_it_is_compiled_and_not_when_it_is_loaded(tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text(WORK)
    settings = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, script], capture_output=True, text=True, env=settings, timeout=120
        )
        assert done.returncode == 0, done.stderr[-2000:]
        told.append(json.loads(done.stdout.splitlines()[-1]))
    assert told == [[["double"], []], [[], []]]

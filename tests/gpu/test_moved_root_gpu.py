"""A root of kernels that were compiled here, found under another path: nothing is compiled again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sgl_tune.running import run_here

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
COMPILERS = ("nvcc", "ninja", "ptxas", "cicc", "g++", "c++", "gcc", "cc")
WORK = """
import json, subprocess, torch, triton, triton.language as tl, flashinfer
started = []
own = subprocess.Popen.__init__
def spy(self, args, *rest, **more):
    words = [str(word) for word in args] if isinstance(args, (list, tuple)) else str(args).split()
    started.append(words[0] + " --version" * ("--version" in words))
    own(self, args, *rest, **more)
subprocess.Popen.__init__ = spy

@triton.jit
def double(x, n: tl.constexpr):
    at = tl.arange(0, n)
    tl.store(x + at, tl.load(x + at) * 2)

x = torch.ones(64, 128, device="cuda", dtype=torch.bfloat16)
double[(1,)](x, 128)
y = flashinfer.norm.rmsnorm(x, torch.ones(128, device="cuda", dtype=torch.bfloat16))
torch.cuda.synchronize()
names = [str(one).rsplit("/", 1)[-1] for one in started]
print(json.dumps({"started": names, "sum": float(y.float().sum())}))
"""


def _started(root: Path, *more: object) -> dict[str, object]:
    script = root.parent / "work.py"
    script.write_text(WORK)
    printed = run_here("relocate", root, *more, "--format", "json").out
    given = json.loads(printed)["environment"]
    ours = (given.get("PYTHONPATH"), os.environ.get("PYTHONPATH"))
    given["PYTHONPATH"] = os.pathsep.join(filter(None, ours))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env={**os.environ, **given}, timeout=1200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_a_moved_read_only_root_starts_no_compiler(tmp_path: Path) -> None:
    made, moved = tmp_path / "made", tmp_path / "moved"
    made.mkdir()
    cold = _started(made)
    assert {"ninja"} <= set(map(str, cold["started"])), "the first start compiles"  # type: ignore[call-overload]
    shutil.copytree(made, moved, copy_function=shutil.copyfile)
    shutil.rmtree(made)
    for path in moved.rglob("*"):
        os.utime(path, (10**9, 10**9))
    assert run_here("verify", moved).code == 1
    assert run_here("relocate", moved).code == 0 and run_here("verify", moved).code == 0
    before = _files(moved)
    warm = _started(moved, "--read-only", "--scratch", tmp_path / "scratch")
    # Triton's keys hold its compiler's version, which it asks of the compiler.
    assert not set(map(str, warm["started"])) & set(COMPILERS)  # type: ignore[call-overload]
    assert warm["sum"] == cold["sum"]
    assert _files(moved) == before


def _files(root: Path) -> dict[Path, int]:
    """But for Python's own bytecode, which root may write anywhere."""
    return {
        path: path.stat().st_mtime_ns
        for path in root.rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }

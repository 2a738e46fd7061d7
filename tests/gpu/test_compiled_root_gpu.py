"""A root that was compiled on a machine without a GPU: its modules are loaded here, and nothing compiles.

SGL_TUNE_COMPILED_ROOT names it: the folder that `sgl-tune warm --everything --compile-only` filled, or its
archive. Where strace is on the path, every program that is started is counted; else those of Python.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.sgl_tune.running import run_here

torch = pytest.importorskip("torch")
ROOT = os.environ.get("SGL_TUNE_COMPILED_ROOT", "")
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.skipif(not ROOT, reason="SGL_TUNE_COMPILED_ROOT names no root"),
]
COMPILERS = set(
    ["nvcc", "ninja", "ptxas", "cicc", "cudafe++", "fatbinary", "g++", "c++", "gcc", "cc", "cc1plus", "ld"]
)
STRACE = ["-f", "--seccomp-bpf", "-qq", "-e", "trace=execve", "-e", "signal=none", "-o"]
WORK = """
import json, subprocess, sys, torch
started = []
own = subprocess.Popen.__init__
def spy(self, args, *rest, **more):
    started.append(args[0] if isinstance(args, (list, tuple)) else str(args).split()[0])
    own(self, args, *rest, **more)
subprocess.Popen.__init__ = spy
import flashinfer.jit.core as jit
names = json.loads(sys.argv[1])
loaded = {}
if "norm" in names:
    from flashinfer.jit.norm import gen_norm_module
    module = gen_norm_module().build_and_load()
    x = torch.randn(64, 128, device="cuda", dtype=torch.bfloat16)
    weight, y = torch.randn(128, device="cuda", dtype=torch.bfloat16), torch.empty_like(x)
    module.rmsnorm(y, x, weight, 1e-6, False)
    wide = x.float()
    right = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * weight.float()
    loaded["norm"] = float((y.float() - right).abs().max() / right.abs().max())
if "sampling" in names:
    from flashinfer.sampling import top_k_top_p_sampling_from_probs as sample
    rows = torch.zeros(8, 1000, device="cuda")
    rows[:, 7] = 1.0
    loaded["sampling"] = float((sample(rows, 5, 0.9) != 7).sum())
if "trtllm_utils" in names:
    from flashinfer.tllm_utils import delay_kernel
    delay_kernel(10)
    loaded["trtllm_utils"] = 0.0
torch.cuda.synchronize()
print(json.dumps({"started": [str(one).rsplit("/", 1)[-1] for one in started], "loaded": loaded}))
"""


def _unpacked(folder: Path) -> Path:
    given = Path(ROOT)
    root = folder / "root"
    if given.is_dir():
        shutil.copytree(given, root, copy_function=shutil.copyfile)
    else:
        with tarfile.open(given) as archive:
            archive.extractall(root, filter="data")
    return root


def test_what_was_compiled_without_a_gpu_is_loaded_without_a_compiler(tmp_path: Path) -> None:
    root = _unpacked(tmp_path)
    modules = [path.parent.name for path in root.glob(".cache/flashinfer/*/*/cached_ops/*/*.so")]
    assert "norm" in modules, "nothing is compiled in this root"
    printed = run_here("relocate", root, "--format", "json").out
    assert run_here("verify", root).code == 0
    given = json.loads(printed)["environment"]
    given["PYTHONPATH"] = os.pathsep.join([given["PYTHONPATH"], os.environ.get("PYTHONPATH", "")])
    script, log = tmp_path / "work.py", tmp_path / "execve"
    script.write_text(WORK)
    strace = shutil.which("strace")
    words = [sys.executable, str(script), json.dumps(modules)]
    if strace:
        words = [strace, *STRACE, str(log), *words]
    settings = {**os.environ, **given, "FLASHINFER_DISABLE_JIT": "1"}
    # tvm-ffi may build a bridge to this machine's torch, which is of no module.
    subprocess.run([sys.executable, "-c", "import tvm_ffi"], env=settings, timeout=300, check=True)
    done = subprocess.run(words, capture_output=True, text=True, env=settings, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    programs = {line.split('"')[1].rsplit("/", 1)[-1] for line in _executed(log)} | set(told["started"])
    print(f"loaded {sorted(told['loaded'])} of {sorted(modules)}; started {sorted(programs)}")
    assert set(told["loaded"]) == set(modules) & {"norm", "sampling", "trtllm_utils"}
    assert told["loaded"]["norm"] < 0.01 and not told["loaded"].get("sampling")
    assert not programs & COMPILERS


def _executed(log: Path) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in lines if "execve(" in line and line.rstrip().endswith("= 0")]

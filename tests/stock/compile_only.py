"""FlashInfer's real module `norm`, compiled without a GPU by the toolkit that is here: interrupted, resumed,
found again, loaded. Takes some minutes; `make compile-only`.

CUDA_HOME names another toolkit than pip's or the path's.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.sgl_tune.running import PROGRAM, environment
from tests.sgl_tune.schemas import schema_faults

MODEL = ("--model-path", "Qwen/Qwen3-30B-A3B", "--gpu", "h200", "--sglang-version", "0.5.23")
COMPILERS = (b"cicc", b"ptxas", b"cudafe++", b"nvcc", b"cc1plus", b"ninja")
BUILD = """
from sgl_tune.warm.compilations import counted
from flashinfer.jit.norm import gen_norm_module
with counted() as seen:
    gen_norm_module().build()
print(seen.of_a_server)
"""
LOAD = "import sys, ctypes, tvm_ffi; ctypes.CDLL(sys.argv[1]); print(tvm_ffi.load_module(sys.argv[2]))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    root = parser.parse_args().work.absolute() / "root"
    words = [*PROGRAM, "warm", "--everything", "--compile-only", "--module", "norm", *MODEL]
    words += ["--cache-dir", str(root), "--format", "json"]
    _interrupt(words, root)
    first, again = _run(words), _run(words)
    (built,), (there,) = first["modules"], again["modules"]
    assert (built["state"], there["state"]) == ("built", "there"), (built, there)
    print(f"norm: {built['steps']} steps in {built['seconds']:.0f} s after the interruption, then found")
    for command in ("verify", "inspect"):
        done = _done([*PROGRAM, command, *(["--store", "all"] if command == "inspect" else []), str(root)])
        assert done.returncode == 0, done.stdout + done.stderr
        print(done.stdout.splitlines()[-1])
    _found_by_flashinfer(root)
    _load(root)


def _found_by_flashinfer(root: Path) -> None:
    """In place, and with the same toolkit, its own build compiles nothing."""
    from sgl_tune.compile.toolkit import find_toolkit, program_path

    settings = {"FLASHINFER_WORKSPACE_BASE": str(root), "FLASHINFER_CUDA_ARCH_LIST": "9.0"}
    settings |= {"PATH": program_path(os.environ), **find_toolkit(os.environ).environment({})}
    done = _done([sys.executable, "-c", BUILD], **settings)
    assert done.returncode == 0 and done.stdout == "[]\n", done.stdout + done.stderr
    print("FlashInfer's own build finds it fresh")


def _interrupt(words: list[str], root: Path) -> None:
    """When the first compiler is at work: nothing of it is left. A shell's background ignores Ctrl-C."""
    working = subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    limit = time.monotonic() + 120
    while not _compilers(root):
        assert working.poll() is None and time.monotonic() < limit, "no compiler was started"
        time.sleep(0.1)
    time.sleep(3)
    working.send_signal(signal.SIGTERM)
    assert working.wait(30) == -signal.SIGTERM
    time.sleep(0.5)
    assert not _compilers(root), "a compiler outlives us"
    print("interrupted: no compiler is left")


def _compilers(root: Path) -> list[int]:
    """That work for this root."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = place.read_bytes()
        except OSError:
            continue
        if line.split(b"\0")[0].rsplit(b"/", 1)[-1] in COMPILERS and str(root).encode() in line:
            found.append(int(place.parent.name))
    return found


def _run(words: list[str]) -> dict[str, Any]:
    done = _done(words)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert schema_faults("warm", told) == []
    return dict(told["everything"])


def _done(words: list[str], **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, env=environment(**settings), timeout=3600)


def _load(root: Path) -> None:
    """Where the CUDA runtime is here: loading needs no GPU."""
    from sgl_tune.compile.toolkit import find_toolkit

    home = find_toolkit(os.environ).home
    runtime = next((one for part in ("lib64", "lib") for one in (home / part).glob("libcudart.so.*")), None)
    (library,) = root.glob(".cache/flashinfer/*/90a/cached_ops/norm/norm.so")
    assert runtime is not None, f"{home} has no libcudart"
    done = _done([sys.executable, "-c", LOAD, str(runtime), str(library)])
    assert done.returncode == 0, done.stderr[-1000:]
    print(f"loaded: {done.stdout.strip()}")


if __name__ == "__main__":
    main()

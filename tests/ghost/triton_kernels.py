"""Runs in a server's Python on the ghost: launches kernels of its own, and prints how each launch ended.

SERVER_PYTHON -I triton_kernels.py LIBRARY FOLDER_OF_KERNELS KERNEL[:BLOCK]...
"""

import ctypes
import json
import sys
import types
from pathlib import Path

package = types.ModuleType("runtime")
package.__path__ = [str(Path(__file__).resolve().parents[2] / "runtime")]
sys.modules["runtime"] = package

from runtime.ghost.inside import honesty, install  # noqa: E402

install.install(sys.argv[1], False, {})

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

install.imported(sys.argv[2])


@triton.jit
def good(out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, at.to(tl.float32), mask=at < size)


@triton.jit
def no_pointer(out, size, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(size + at), mask=at < size)


@triton.jit
def large(out, size, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    left = tl.load(out + at[:, None] * BLOCK + at[None, :])
    right = tl.load(out + at[None, :] * BLOCK + at[:, None])
    tl.store(out + at[:, None] * BLOCK + at[None, :], tl.dot(left, right))


@triton.jit
def wants_a_package(out, size, BLOCK: tl.constexpr):
    missing()
    tl.store(out + tl.arange(0, BLOCK), 0.0)


@tl.core.builtin
def missing(_semantic=None):
    import a_package_that_is_not_there  # noqa: F401


@triton.autotune([triton.Config({"BLOCK": block}) for block in (64, 256)], key=["size"])
@triton.jit
def tuned(out, size, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK <= 128)
    tl.store(out + tl.arange(0, BLOCK), 0.0)


def launched(name):
    """Return how a launch ended: the kernel's figures or the error, and what a record would say."""
    hits, before, findings[:] = [], launches(), []
    triton.knobs.compilation.listener = lambda cache_hit, **told: hits.append(cache_hit)
    out = torch.empty(1 << 16, device="cuda")
    name, _, block = name.partition(":")
    options = {} if name == "tuned" else {"BLOCK": int(block or 256)}
    try:
        kernel = globals()[name][(4,)](out, 1000, **options)
        answer = {"type": None, "shared": kernel.metadata.shared, "digest": kernel.hash}
    except Exception as error:
        answer = {"type": type(error).__name__, "text": str(error)}
    return {**answer, "hits": hits, "launches": launches() - before, "inexact": list(findings)}


def launches():
    counted = (ctypes.c_uint64 * 8)()
    ctypes.CDLL(sys.argv[1]).ghost_stats(counted)
    return counted[0]


findings = []
honesty.inexact = lambda kind, name, why, size=0: findings.append([kind, name, why])
print(json.dumps({name: launched(name) for name in sys.argv[3:]}))

"""torch.compile times a kernel that is not in its cache, with a buffer as large as the GPU's own cache.

That buffer may decide the peak of a phase, so the state of torch.compile's cache is an input of a start: the
start finds only kernels that the request names. Each kernel that it looks for is reported.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from runtime.ghost.inside.hooks import around
from runtime.ghost.inside.stream import say

STORE = "torch.compile"
MILLISECONDS = 1.0
_kept: list[str] = []
_said: set[str] = set()


def hand_in(patterns: Sequence[str]) -> None:
    """Treat kernels of these names as cached: none of them is timed."""
    _kept.extend(patterns)


@around("torch._inductor.runtime.triton_heuristics", "CachingAutotuner.bench")
def _bench(bench: Any, tuner: Any, *args: Any, **kwargs: Any) -> Any:
    return MILLISECONDS if _look_for(_name_of(tuner)) else bench(tuner, *args, **kwargs)


def _name_of(tuner: Any) -> str:
    """Return a kernel's name with its sizes, as names are shared: `triton_poi_fused_mul_sum_0 x=2048`."""
    sizes = getattr(tuner, "size_hints", None) or {}
    return " ".join((tuner.fn.__name__, *(f"{axis}={size}" for axis, size in sizes.items())))


def _look_for(name: str) -> bool:
    found = any(fnmatchcase(name, pattern) for pattern in _kept)
    if name not in _said:
        _said.add(name)
        say("file", store=STORE, path=name, found=found)
    return found

"""Memory a CUDA op takes while it runs and nobody sees: declared here, so that a prediction contains it.

`DECLARED` maps an op to a function of its arguments (by name) and result, returning the sizes in bytes of
what lives until the op returns. The opaque `sgl_tune::` kernels and the torch ops with hidden temporaries
belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Declaration = Callable[[Mapping[str, Any], Any], Sequence[int]]

_MIB = 1 << 20
# torch takes one workspace for each stream that runs a GEMM, and keeps it.
GEMM_OPS = frozenset(
    f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "_scaled_mm")
)


@dataclass(frozen=True, slots=True)
class Needs:
    kept: Sequence[int] = ()
    transient: Sequence[int] = ()


_NOTHING = Needs()


class Workspaces:
    """`gemm_bytes` is torch's cuBLAS workspace on the GPU in question; 0 where there is none."""

    def __init__(self, gemm_bytes: int = 0, declared: Mapping[str, Declaration] | None = None) -> None:
        self._gemm_bytes = gemm_bytes
        self._declared = DECLARED if declared is None else declared
        self._gemm_streams: set[int] = set()
        self._names: dict[Any, str] = {}

    def needs(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, stream: int
    ) -> Needs:
        name = self._names.get(func)
        if name is None:
            name = self._names[func] = self._interesting_name(func)
        if not name:
            return _NOTHING
        kept: Sequence[int] = ()
        if name in GEMM_OPS and stream not in self._gemm_streams:
            self._gemm_streams.add(stream)
            kept = [self._gemm_bytes]
        declare = self._declared.get(name)
        return Needs(kept, declare(_by_name(func, args, kwargs), out) if declare else ())

    def _interesting_name(self, func: Any) -> str:
        name = func._schema.name
        wanted = name in self._declared or (self._gemm_bytes and name in GEMM_OPS)
        return name if wanted else ""


def _by_name(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    arguments = func._schema.arguments
    values = {argument.name: argument.default_value for argument in arguments}
    values.update(zip((argument.name for argument in arguments), args, strict=False))
    values.update(kwargs)
    return values


DECLARED: dict[str, Declaration] = {}

"""SGLang's own kernels: its loader builds each by ninja, into a store that is keyed by contents."""

import functools
from typing import Any

from runtime.baking.inside.aside import compile_aside, in_child
from runtime.ghost.inside.hooks import after

# Where releases have `load_jit`; later names import it from an earlier one.
PLACES = (
    "sglang.jit_kernel.utils",
    "sglang.kernels.jit.utils.compile",
    "sglang.kernels.jit.utils.compile.loader",
)


def _loader(module: Any) -> None:
    inner = getattr(module, "load_jit", None)
    if inner is None or hasattr(inner, "bakes"):
        return

    @functools.wraps(inner)
    def load_jit(*args: Any, **kwargs: Any) -> Any:
        if not in_child():
            compile_aside("tvm-ffi", "_".join(map(str, args)), lambda: inner(*args, **kwargs))
        return inner(*args, **kwargs)

    load_jit.bakes = True  # type: ignore[attr-defined]
    module.load_jit = load_jit


for _place in PLACES:
    after(_place)(_loader)

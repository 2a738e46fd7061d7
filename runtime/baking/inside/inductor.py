"""Inductor: a graph is compiled by torch itself, with the launchers that the ghost turns off."""

import itertools
from typing import Any

from runtime.baking.inside.aside import compile_aside, in_child
from runtime.ghost.inside.hooks import after, around

_LAUNCHERS = ("use_static_triton_launcher", "use_static_cuda_launcher")
_own: dict[str, bool] = {}
_numbers = itertools.count()


@after("torch._inductor.config", first=True)
def _config(config: Any) -> None:
    _own.update({name: getattr(config, name) for name in _LAUNCHERS if hasattr(config, name)})


@around("torch._inductor.compile_fx", "compile_fx")
def _compile_fx(inner: Any, *args: Any, **kwargs: Any) -> Any:
    if not in_child():
        number = next(_numbers)
        compile_aside("inductor", f"graph {number}", lambda: _for_real(inner, *args, **kwargs))
    return inner(*args, **kwargs)


def _for_real(inner: Any, *args: Any, **kwargs: Any) -> Any:
    from torch._inductor import config

    for name, value in _own.items():
        setattr(config, name, value)
    return inner(*args, **kwargs)

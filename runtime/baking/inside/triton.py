"""Triton: a kernel, and the C code that launches it, are compiled by Triton itself, into its own cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.baking.inside.aside import compile_aside, in_child
from runtime.ghost.inside.hooks import after

_own: dict[str, Any] = {}  # Triton's own functions, before the ghost replaces them
_PARTS = ("make_backend", "get_cache_manager")


@after("triton.compiler.compiler", first=True)
def _compiler(module: Any) -> None:
    _own.update({name: getattr(module, name) for name in ("compile", *_PARTS)})


@after("triton.backends.nvidia.driver", first=True)
def _driver(module: Any) -> None:
    _own["launcher"] = module.compile_module_from_src


def wrap() -> None:
    """Compile aside what the ghost compiles in part. Called after the ghost has registered its hooks."""

    @after("triton.compiler.compiler")
    def _again(module: Any) -> None:
        in_part = module.compile

        def compile(source: Any, *args: Any, **kwargs: Any) -> Any:
            if in_child():
                return _for_real(module, source, *args, **kwargs)
            compile_aside("triton", _name(source), lambda: _for_real(module, source, *args, **kwargs))
            return in_part(source, *args, **kwargs)

        module.compile = compile

    @after("triton.backends.nvidia.driver")
    def _launcher(module: Any) -> None:
        in_part = module.compile_module_from_src

        def compile_module_from_src(*args: Any, **kwargs: Any) -> Any:
            name = str(kwargs.get("name") or (args[1] if len(args) > 1 else ""))
            compile_aside("triton", name, lambda: _own["launcher"](*args, **kwargs))
            return in_part(*args, **kwargs)

        module.compile_module_from_src = compile_module_from_src


def _for_real(module: Any, *args: Any, **kwargs: Any) -> Any:
    for name in _PARTS:
        setattr(module, name, _own[name])
    compile: Callable[..., Any] = _own["compile"]
    return compile(*args, **kwargs)


def _name(source: Any) -> str:
    function = getattr(getattr(source, "fn", None), "fn", None)
    return (
        f"{function.__module__}.{function.__qualname__}" if function else str(getattr(source, "name", source))
    )

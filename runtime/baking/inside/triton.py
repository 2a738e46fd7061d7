"""Triton: a kernel, and the C code that launches it, are compiled by Triton itself, into its own cache."""

import os
import platform
from collections.abc import Callable
from typing import Any

from runtime.baking.inside.aside import compile_aside, in_child
from runtime.ghost.inside.hooks import after

_own: dict[str, Any] = {}  # Triton's own functions, before the ghost replaces them
_PARTS = ("make_backend", "get_cache_manager")
# Its C code: what launches a kernel, and since 3.8 the driver's helpers alone.
_BUILDERS = ("compile_module_from_src", "compile_module_from_file")
# Since 3.8 their key holds the folder of the driver's library. On a target ldconfig names one of these.
_OF_THE_DRIVER = tuple(f"{at}/{platform.machine()}-linux-gnu" for at in ("/lib", "/usr/lib"))


@after("triton.compiler.compiler", first=True)
def _compiler(module: Any) -> None:
    _own.update({name: getattr(module, name) for name in ("compile", *_PARTS)})


@after("triton.backends.nvidia.driver", first=True)
def _driver(module: Any) -> None:
    _own.update({name: getattr(module, name) for name in _BUILDERS if hasattr(module, name)})


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
        for builder in _BUILDERS:
            if builder in _own:
                setattr(module, builder, _built_aside(builder, getattr(module, builder)))


def _built_aside(builder: str, in_part: Callable[..., Any]) -> Callable[..., Any]:
    def build(*args: Any, **kwargs: Any) -> Any:
        def for_real() -> None:
            for folder in _OF_THE_DRIVER:
                there = [folder if one == ours else one for one in kwargs.get("library_dirs") or ()]
                _own[builder](*args, **{**kwargs, "library_dirs": there})

        ours = os.environ.get("TRITON_LIBCUDA_PATH")
        name = str(kwargs.get("name") or (args[1] if len(args) > 1 else ""))
        compile_aside("triton", name, for_real)
        return in_part(*args, **kwargs)

    return build


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

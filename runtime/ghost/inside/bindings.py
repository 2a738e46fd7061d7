"""Answers for `cuda.bindings`, which has a CUDA runtime of its own, with the ghost's runtime.

That runtime cannot start here: every other function fails, and reports its name when it is called.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from runtime.ghost.inside import honesty
from runtime.ghost.inside.hooks import after
from runtime.ghost.inside.library import library

_POINTER = ctypes.c_void_p
# The argument types of each function, by name.
FORWARDED: dict[str, tuple[Any, ...]] = {
    "cudaStreamSynchronize": (_POINTER,),
    "cudaDeviceSynchronize": (),
    "cudaSetDevice": (ctypes.c_int,),
    "cudaFree": (_POINTER,),
    "cudaHostRegister": (_POINTER, ctypes.c_size_t, ctypes.c_uint),
    "cudaHostUnregister": (_POINTER,),
    "cudaGraphExecDestroy": (_POINTER,),
    "cudaGraphLaunch": (_POINTER, _POINTER),
    "cudaDeviceEnablePeerAccess": (ctypes.c_int, ctypes.c_uint),
}
ASKED: dict[str, Any] = {
    "cudaGetDeviceCount": ctypes.c_int,
    "cudaGetDevice": ctypes.c_int,
    "cudaDriverGetVersion": ctypes.c_int,
    "cudaRuntimeGetVersion": ctypes.c_int,
}
NEED_NO_GPU = {"cudaGetErrorName", "cudaGetErrorString", "getLocalRuntimeVersion"}
FAILS = "the CUDA runtime inside cuda.bindings fails here: only the functions that are written are answered"


def _said(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        honesty.inexact("stub", f"cuda.bindings.runtime.{name}", FAILS)
        return inner(*args, **kwargs)

    return call


def _forward(module: Any, name: str, kinds: tuple[Any, ...]) -> Callable[..., tuple[Any, ...]]:
    def call(*args: Any) -> tuple[Any, ...]:
        function = library().runtime(name)
        given = [kind(int(one)) for kind, one in zip(kinds, args, strict=True)]
        return (module.cudaError_t(function(*given)),)

    return call


def _ask(module: Any, name: str, kind: Any) -> Callable[[], tuple[Any, ...]]:
    def call() -> tuple[Any, ...]:
        function = library().runtime(name)
        answer = kind()
        return module.cudaError_t(function(ctypes.byref(answer))), answer.value

    return call


def _capture_info(module: Any) -> Callable[..., tuple[Any, ...]]:
    active = module.cudaStreamCaptureStatus.cudaStreamCaptureStatusActive
    none = module.cudaStreamCaptureStatus.cudaStreamCaptureStatusNone

    def call(stream: Any) -> tuple[Any, ...]:
        status = active if library().is_capturing(int(stream)) else none
        return module.cudaError_t.cudaSuccess, status, 1, None, [], [], 0

    return call


@after("cuda.bindings.runtime")
def _runtime(module: Any) -> None:
    for name, one in list(vars(module).items()):
        if name.startswith("cuda") and callable(one) and not isinstance(one, type):
            setattr(module, name, one if name in NEED_NO_GPU else _said(name, one))
    for name, given in FORWARDED.items():
        if hasattr(module, name):
            setattr(module, name, _forward(module, name, given))
    for name, kind in ASKED.items():
        if hasattr(module, name):
            setattr(module, name, _ask(module, name, kind))
    module.cudaStreamGetCaptureInfo = _capture_info(module)

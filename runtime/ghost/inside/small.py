"""Small tensors hold what kernels would have computed: a dispatch mode repeats small operations on the CPU.

The CPU can read the ghost's device memory. An operation whose tensors are small and real runs twice: on the
ghost, which allocates the result and computes nothing, and on CPU tensors over the same bytes. The bytes that
any other operation writes are marked as not real.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from runtime.ghost.inside.hooks import around

_mode: Any = None
_captures = 0
_asides = 0
_allowed = True
_python_operators: set[str] = set()
_counted_views: set[str] = set()  # operators with a kernel of their own for changed arguments
_outside: dict[tuple[bool, bool], tuple[Any, Any]] = {}
# The dispatch keys under which a Python function is the kernel on a GPU.
_KEYS = {"CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd", ""}


def allow(values: bool) -> None:
    """Set whether `on` does anything."""
    global _allowed
    _allowed = values


def on() -> None:
    """Keep small values from now on, in this thread."""
    global _mode
    if _mode is None and _allowed:
        from runtime.ghost.inside.mode import Small

        _read_keys()
        _mode = Small(_python_operators)
        _mode.__enter__()


def _read_keys() -> None:
    """Read the dispatch keys under which a kernel runs without a mode, in and out of inference mode."""
    import torch

    views = torch._C.DispatchKey.ADInplaceOrView
    for inference in (False, True):
        with torch.inference_mode(inference):
            included = torch._C._dispatch_tls_local_include_set()
            excluded = torch._C._dispatch_tls_local_exclude_set()
            _outside[inference, False] = included, excluded
            _outside[inference, True] = included, excluded.add(views)


def runs() -> bool:
    """Whether kernels would run now: while launches are captured into a graph, none does."""
    return _captures == 0


def off() -> AbstractContextManager[Any]:
    """A context in which torch dispatches as if no mode were on: for compiled code that calls torch."""
    if _mode is None:
        return nullcontext()
    import torch

    return torch._C._DisableTorchDispatch()  # type: ignore[no-any-return]


@contextmanager
def aside() -> Iterator[None]:
    """A context in which the mode is off the stack, and stays off, for code that looks for modes."""
    global _asides
    was_on = _mode is not None and _mode.is_on()
    if was_on:
        _mode.__exit__(None, None, None)
    _asides += 1
    try:
        yield
    finally:
        _asides -= 1
        if was_on:
            _mode.__enter__()


@contextmanager
def again() -> Iterator[None]:
    """A context within `aside` in which the mode is on: for a compiler that decides by a value."""
    if _mode is None or _captures or _mode.is_on():
        yield
        return
    _mode.__enter__()
    try:
        yield
    finally:
        _mode.__exit__(None, None, None)


@around("torch._library.simple_registry", "find_torch_dispatch_rule")
def _rule(find: Any, operator: Any, kind: Any) -> Any:
    """Answer None when torch asks for the mode's own rule for an operation; our mode has none."""
    return None if _mode is not None and kind is type(_mode) else find(operator, kind)


@around("torch.library", "Library.impl")
def _impl(impl: Any, own: Any, name: Any, function: Any, dispatch_key: str = "", **options: Any) -> Any:
    """Turn the mode on again in the body of a Python kernel, which torch runs below the mode."""
    key = dispatch_key or own.dispatch_key
    plain = name if isinstance(name, str) else name._schema.name
    plain = f"{own.ns}::{plain.split('::')[-1].split('.')[0]}"
    if callable(function) and key in _KEYS and own.ns not in ("aten", "prims"):
        _python_operators.add(plain)
        function = _seen(plain, function, options.get("with_keyset", False))
    elif key == "ADInplaceOrView":
        _counted_views.add(plain)
    return impl(own, name, function, dispatch_key, **options)


@around("torch.cuda.graphs", "CUDAGraph.capture_begin")
def _rest(begin: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
    """Turn the mode off while a graph is captured, because no value changes then."""
    global _captures
    began = begin(graph, *args, **kwargs)
    _captures += 1
    if _captures == 1 and _mode is not None and _mode.is_on():
        _mode.__exit__(None, None, None)
        _mode.resting = True
    return began


@around("torch.cuda.graphs", "CUDAGraph.capture_end")
def _wake(end: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
    global _captures
    _captures = max(0, _captures - 1)
    if _captures == 0 and _mode is not None and _mode.resting:
        _mode.resting = False
        _mode.__enter__()
    return end(graph, *args, **kwargs)


def _seen(name: str, function: Any, with_keyset: bool) -> Any:
    if with_keyset or type(function).__name__ == "OpOverload":
        return function

    def body(*args: Any, **kwargs: Any) -> Any:
        if _mode is None or _captures or _asides or _mode.is_on():
            return function(*args, **kwargs)
        import torch

        keys = _outside[torch.is_inference_mode_enabled(), name in _counted_views]
        with torch._C._ForceDispatchKeyGuard(*keys), _mode:
            return function(*args, **kwargs)

    for copied in ("__name__", "__qualname__", "__module__", "__doc__"):
        with suppress(AttributeError, TypeError):
            setattr(body, copied, getattr(function, copied))
    body.__wrapped__ = function  # type: ignore[attr-defined]
    return body

"""The dispatch mode of small.py: which bytes each operation leaves real."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from runtime.ghost.inside import host, philox
from runtime.ghost.inside.library import HELD, REAL, library
from runtime.ghost.inside.plans import Kind, Plan, plan_of
from runtime.ghost.inside.values import extent, forget

NONE: dict[str, Any] = {}
Handler = Callable[[Plan, Any, Any, Any], Any]


class Small(TorchDispatchMode):
    """Runs each operation unchanged, then decides which bytes it left real."""

    def __init__(self, python_operators: set[str]) -> None:
        super().__init__()
        self._python = python_operators
        self._known: dict[int, tuple[Plan, Handler | None, Any]] = {}  # an operator's own hash is slow
        self.resting = False

    def is_on(self) -> bool:
        return _get_current_dispatch_mode() is self

    def run(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation. torch calls this in its place."""
        plan, handle, _ = self._known.get(id(func)) or self._meet(func)
        if handle is None or is_capturing():
            return func(*args, **kwargs) if kwargs else func(*args)
        return handle(plan, func, args, kwargs or NONE)

    def _meet(self, func: Any) -> tuple[Plan, Handler | None, Any]:
        plan = plan_of(func, self._python)
        self._known[id(func)] = met = plan, HANDLERS.get(plan.kind), func
        return met


# Set outside the class body, because torch would wrap it there in calls that keep its compiler away.
Small.__torch_dispatch__ = Small.run  # type: ignore[assignment]
is_capturing = torch._C._cuda_isCurrentStreamCapturing


def tensors(args: Any, kwargs: Any) -> list[Any]:
    """Return every tensor among the arguments, including those in lists."""
    found: list[Any] = []
    for one in args:
        _collect(one, found)
    for one in kwargs.values():
        _collect(one, found)
    return found


def _collect(one: Any, found: list[Any]) -> None:
    if isinstance(one, torch.Tensor):
        found.append(one)
    elif isinstance(one, (list, tuple)):
        for inner in one:
            _collect(inner, found)


def _on_device(given: list[Any], kwargs: Any) -> bool:
    for one in given:
        if one.is_cuda:
            return True
    device = kwargs.get("device")
    return (
        device is not None
        and (device.type if isinstance(device, torch.device) else str(device)[:4]) == "cuda"
    )


def _fresh(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs) if kwargs else func(*args)


def _lost(plan: Plan, out: Any, args: Any, kwargs: Any, given: list[Any]) -> None:
    """Mark the results and changed tensors of a kernel that did not run as not real."""
    for at, name in plan.written:
        changed = args[at] if at < len(args) else kwargs.get(name)
        if changed is not None:
            forget(changed)
    if plan.returns_fresh:
        for one in (out,) if isinstance(out, torch.Tensor) else tensors((out,), NONE):
            if one.is_cuda and not (plan.may_alias and _shares(one, given)):
                library().mark(*extent(one), 0)


def _shares(one: Any, given: list[Any]) -> bool:
    base = one.untyped_storage().data_ptr()
    return any(other.is_cuda and other.untyped_storage().data_ptr() == base for other in given)


def _empty(plan: Plan, func: Any, args: Any, kwargs: Any) -> Any:
    out = _fresh(func, args, kwargs)
    if out.is_cuda:
        library().mark(out.data_ptr(), out.nbytes, 0)
    return out


def _ordinary(plan: Plan, func: Any, args: Any, kwargs: Any) -> Any:
    given = tensors(args, kwargs)
    if not _on_device(given, kwargs):
        return _fresh(func, args, kwargs)
    real = host.all_real(given)
    if not real and (plan.answers or plan.sized or not host.all_real(given, held=True)):
        out = _fresh(func, args, kwargs)
        _lost(plan, out, args, kwargs, given)
        return out
    if plan.answers:  # a number: the ghost would read memory that no kernel wrote
        answer = host.compute(func, args, kwargs)
        return answer if answer is not host.FAILED else _fresh(func, args, kwargs)
    if plan.sized:
        return _sized(plan, func, args, kwargs, given)
    out = _fresh(func, args, kwargs)
    fresh = [one for one in tensors((out,), NONE) if one.is_cuda]
    if all(map(host.is_small, fresh)):
        computed = host.compute(func, args, kwargs)
        mark = REAL if real else HELD
        if computed is not host.FAILED and host.settle(plan, out, computed, args, kwargs, mark):
            return out
    _lost(plan, out, args, kwargs, given)
    return out


def _sized(plan: Plan, func: Any, args: Any, kwargs: Any, given: list[Any]) -> Any:
    """Run an operation whose result's size depends on values, which no kernel wrote on the ghost."""
    computed = host.compute(func, args, kwargs)
    if computed is host.FAILED:
        out = _fresh(func, args, kwargs)
        _lost(plan, out, args, kwargs, given)
        return out
    device = next(one.device for one in given if one.is_cuda)
    return host.on_device(computed, device)


def _index(plan: Plan, func: Any, args: Any, kwargs: Any) -> Any:
    """Index, with each known mask replaced by the indices that it stands for."""
    indices = args[1]
    if any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in indices):
        args = (args[0], host.without_masks(indices), *args[2:])
    return _ordinary(plan, func, args, kwargs)


def _copy(plan: Plan, func: Any, args: Any, kwargs: Any) -> Any:
    """Copy. The library follows copies by the driver; those by a kernel are decided here."""
    given = tensors(args, kwargs)
    if not _on_device(given, kwargs):
        return _fresh(func, args, kwargs)
    source = given[-1] if plan.written else given[0]
    real = not source.is_cuda or host.is_real(source)
    out = _fresh(func, args, kwargs)
    if plan.may_alias and _shares(out, given):
        return out
    if not out.is_cuda:
        if not real and not host.is_real(source, held=True):
            host.read_unreal(out)
        return out
    if not _same_layout(out, source) and (source.is_cuda or not out.is_contiguous()):
        _copied_by_a_kernel(out, source, real)
    return out


def _copied_by_a_kernel(out: Any, source: Any, real: bool) -> None:
    if real and host.is_small(source) and host.is_small(out):
        host.over(out).copy_(host.over(source))
        host.mark_elements(out)
    else:
        library().mark(*extent(out), 0)


def _copies(plan: Plan, func: Any, args: Any, kwargs: Any) -> Any:
    """Copy many tensors into as many others, by one kernel."""
    real = [not one.is_cuda or host.is_real(one) for one in args[1]]
    out = _fresh(func, args, kwargs)
    for into, source, is_real in zip(args[0], args[1], real, strict=True):
        if into.is_cuda:
            _copied_by_a_kernel(into, source, is_real)
        elif not is_real:
            host.read_unreal(into)
    return out


def _same_layout(out: Any, source: Any) -> bool:
    if out.dtype != source.dtype or out.shape != source.shape:
        return False
    return bool(out.is_contiguous() and source.is_contiguous())


def _zero(plan: Plan, func: Any, args: Any, kwargs: Any) -> Any:
    """Zero a tensor. This is cheap at any size, because memory without pages reads as zero."""
    out = _fresh(func, args, kwargs)
    if not out.is_cuda:
        return out
    if out.is_contiguous():
        host.zero(out.data_ptr(), out.nbytes)
        library().mark(out.data_ptr(), out.nbytes, 1)
    elif host.is_small(out):
        host.over(out).zero_()
        host.mark_elements(out)
    else:
        library().mark(*extent(out), 0)
    return out


def _item(plan: Plan, func: Any, args: Any, kwargs: Any) -> Any:
    value = _fresh(func, args, kwargs)
    known = not args[0].is_cuda or host.is_real(args[0], held=True)
    return value if known else type(value)(0)


def _custom(plan: Plan, func: Any, args: Any, kwargs: Any) -> Any:
    """Run a compiled operator of another package: only its kernels would have written."""
    given = tensors(args, kwargs)
    out = _fresh(func, args, kwargs)
    _lost(plan, out, args, kwargs, given)
    return out


def _uniform(plan: Plan, func: Any, args: Any, kwargs: Any) -> Any:
    """Draw dummy weights as a GPU does: a server compares some of them, such as scales of one number."""
    tensor, generator = args[0], kwargs.get("generator")
    known = tensor.is_cuda and tensor.dtype is torch.float32 and tensor.is_contiguous()
    if generator is None or not known or tensor.numel() > philox.THREADS:
        return _custom(plan, func, args, kwargs)
    seed, offset = generator.initial_seed(), generator.get_offset()
    out = _fresh(func, args, kwargs)
    low, high = (*args[1:], 0.0, 1.0)[:2] if len(args) != 2 else (args[1], 1.0)
    drawn = philox.uniform(seed, offset, tensor.numel(), low, high)
    host.over(tensor).copy_(torch.tensor(drawn).view(tensor.shape))
    host.mark_elements(tensor)
    return out


HANDLERS: dict[Kind, Handler] = {
    Kind.EMPTY: _empty,
    Kind.ORDINARY: _ordinary,
    Kind.INDEX: _index,
    Kind.COPY: _copy,
    Kind.COPIES: _copies,
    Kind.ZERO: _zero,
    Kind.ITEM: _item,
    Kind.CUSTOM: _custom,
    Kind.UNIFORM: _uniform,
}

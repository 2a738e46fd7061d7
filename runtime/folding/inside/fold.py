"""A layer that is equal to the one before it is not run again: the ghost takes what the other one took.

In each pass through a list of layers the first two of each kind run. If both took the same, those after them
take it without a run. A layer that does more, or leaves more behind than its results, runs.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from runtime.folding.inside import running
from runtime.folding.inside.alike import kinds
from runtime.folding.inside.taken import Again, Held, Recorder, Taken, address, attributes
from runtime.ghost.inside import host, small

FEWEST = 4
MISSES = 64  # calls one after the other that cannot be folded: no more are recorded in this step
REFERENCES = 5  # to one of several results that nobody else holds
PLAIN = (type(None), bool, int, float, str)
_stacks: dict[int, Stack] = {}


class New(NamedTuple):
    """A tensor in memory that a layer took."""

    place: int
    dtype: Any
    form: tuple[Any, ...]

    def made(self, memory: dict[int, Any]) -> Any:
        """Return it in the memory that was taken again."""
        storage = memory[self.place].untyped_storage()
        offset, shape, stride = self.form
        return torch.empty(0, dtype=self.dtype, device="cuda").set_(storage, offset, shape, stride)


class Given(NamedTuple):
    """A tensor among a layer's arguments, or a view of it."""

    at: int
    view: tuple[Any, ...]


class Call(NamedTuple):
    taken: Taken
    results: tuple[Any, ...]
    held: dict[Held, New]
    form: TreeSpec


def fold_layers(model: Any) -> None:
    """Fold equal layers of a model from now on. Call again when layers may have changed."""
    running.folds = True
    for layers in _lists(model):
        if id(layers) not in _stacks:
            _stacks[id(layers)] = Stack(layers)
        _stacks[id(layers)].kinds, _stacks[id(layers)].misses = [], 0


def _lists(module: Any) -> Iterator[Any]:
    """The lists of layers that lie in no other one."""
    for inner in module.children() if hasattr(module, "children") else ():
        if isinstance(inner, torch.nn.ModuleList) and len(inner) >= FEWEST:
            yield inner
        else:
            yield from _lists(inner)


class Stack:
    """A list of layers, whose calls come here."""

    def __init__(self, layers: Any) -> None:
        self._layers, self.kinds, self.misses = list(layers), list[int](), 0
        self._last, self._seen = -1, dict[Any, tuple[Call, bool, list[list[int]]]]()
        for at, layer in enumerate(self._layers):
            layer.__dict__["forward"] = self._watched(at, layer.forward)

    def _watched(self, at: int, inner: Any) -> Any:
        @functools.wraps(inner)
        def forward(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or running.recorder is not None or self.misses > MISSES:
                return inner(*args, **kwargs)
            return self._call(at, inner, args, kwargs)

        return forward

    def _call(self, at: int, inner: Any, args: Any, kwargs: Any) -> Any:
        self.kinds = self.kinds or kinds(self._layers)
        if at <= self._last:  # the next pass
            self._seen.clear()
        self._last = at
        given, _ = tree_flatten((args, kwargs))
        stream = torch.cuda.current_stream().cuda_stream
        key = (self.kinds[at], stream, len(args), *kwargs, *map(_form, given))
        known, is_settled, counts = self._seen.get(key, (None, False, []))
        if known is not None and is_settled:
            return _again(known, counts, given, lambda: inner(*args, **kwargs))
        recorder = running.recorder = Recorder(given)
        try:
            out = inner(*args, **kwargs)
        finally:
            running.recorder = None
            taken = recorder.end()
        call = _told(taken, out, given, recorder.places) if taken is not None else None
        self.misses = self.misses + 1 if call is None else 0
        if call is None:
            self._seen.pop(key, None)
        else:
            self._seen[key] = call, call == known, recorder.counts
        return out


def _form(one: Any) -> Any:
    """What two calls must have in common."""
    if isinstance(one, torch.Tensor):
        return one.dtype, one.device, one.shape, one.stride()
    return (type(one), one) if isinstance(one, PLAIN) else id(one)


def _told(taken: Taken, out: Any, given: list[Any], places: dict[int, int]) -> Call | None:
    """None where the results cannot be made without the call."""
    leaves, form = tree_flatten(out)
    if any(_is_kept(one, out, given) for one in leaves if isinstance(one, torch.Tensor)):
        return None
    results = tuple(one if isinstance(one, PLAIN) else _result(one, given, places) for one in leaves)
    held = {name: _new(one, places) for name, one in attributes(given) if address(one) in places}
    swapped = {step for take in taken.takes for step in take.steps if type(step) is Held}
    stays = {one.place for one in (*results, *held.values()) if isinstance(one, New)}
    are_made = all(type(one) in (*PLAIN, Given, New) for one in results) and swapped <= held.keys()
    if not are_made or stays != taken.stays:
        return None
    return Call(taken, results, held, form)


def _is_kept(leaf: Any, out: Any, given: list[Any]) -> bool:
    """Whether somebody else holds a result, such as a stream that asks later whether it is that one."""
    holders = sys.getrefcount(leaf)
    return holders > REFERENCES + 2 * (leaf is out) and all(leaf is not one for one in given)


def _result(out: Any, given: list[Any], places: dict[int, int]) -> Any:
    if type(out) is not torch.Tensor:
        return out
    for at, one in enumerate(given):
        if one is out:
            return Given(at, ())
        if isinstance(one, torch.Tensor) and address(one) == address(out):
            return (
                Given(at, (out.shape, out.stride(), out.storage_offset())) if one.dtype is out.dtype else out
            )
    return out if address(out) not in places or (small.runs() and host.is_real(out)) else _new(out, places)


def _new(tensor: Any, places: dict[int, int]) -> New:
    form = tensor.storage_offset(), tensor.shape, tensor.stride()
    return New(places[address(tensor)], tensor.dtype, form)


def _again(call: Call, counts: list[list[int]], given: list[Any], run: Any) -> Any:
    """Return the results without the call. Make the call where memory runs out: SGLang's frames are told."""

    def swap(held: Held, memory: dict[int, Any]) -> None:
        vars(given[held.at])[held.name] = call.held[held].made(memory)

    with small.off():
        again = Again(call.taken, swap)
        try:
            again.run()
        except torch.OutOfMemoryError:
            if len(call.taken.takes) > 1:
                raise
            again.undo()
        else:
            for held in call.held:
                swap(held, again.made)
            running.skipped += 1
            for one in counts:
                one[0] += 1
            results = [_made(one, given, again.made) for one in call.results]
            again.forget()
            return tree_unflatten(results, call.form)
    return run()


def _made(told: Any, given: list[Any], memory: dict[int, Any]) -> Any:
    if isinstance(told, Given):
        return given[told.at].as_strided(*told.view) if told.view else given[told.at]
    return told.made(memory) if isinstance(told, New) else told

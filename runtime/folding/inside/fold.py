"""A layer that is equal to the one before it is not run again: the ghost takes what the other one took.

In each pass through a list of layers the first two and the last of each kind run. If two took the same, those
between take it without a run. A layer that does more, or leaves more behind than its results, runs. In the
first pass of a phase, captured or not, all run: a layer that takes something else is of another kind.

A server warms each shape up twice. In the second pass a layer takes what it took in the first, and does not
run, if it took the same twice in the shapes before.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import SUPPORTED_NODES, TreeSpec, tree_flatten, tree_unflatten

from runtime.folding.inside import running
from runtime.folding.inside.alike import kinds
from runtime.folding.inside.state import PLAIN, Path, fields_of, form_of, get, is_small, mark, put, state
from runtime.folding.inside.taken import Again, Given, New, Recorder, Swap, Taken, streams
from runtime.ghost.inside import host, small

FEWEST = 4
SHAPES = 2  # one after the other, in which a layer took the same in both passes
MISSES = 64  # calls one after the other that cannot be folded: no more are recorded in this step
NOT_MADE = object()  # what stands for a tensor that was there before the call
# References to one of several results that nobody else holds, and more if it is the only one.
REFERENCES, RETURNED = (5, 2) if sys.version_info >= (3, 11) else (6, 4)
_stacks: dict[int, tuple[Stack, ...]] = {}


class Call(NamedTuple):  # a call that can be made again
    taken: Taken
    most: int  # bytes that torch may ask of the driver
    before: list[Any]  # the form of the arguments
    results: tuple[Any, ...]
    held: dict[Path, Any]  # new tensors in the arguments
    olds: dict[Path, Any]  # and the forms of what they replace
    more: dict[Path, int]  # by how much numbers in them grow
    form: TreeSpec  # of the results

    def can_be_skipped(self, given: list[Any]) -> bool:
        """Whether the arguments are as they were, and there is memory, so that it cannot end half way."""
        are_held = all(form_of(get(given, path)) == form for path, form in self.olds.items())
        return are_held and self.most <= torch.cuda.mem_get_info()[0]


def fold_layers(model: Any, flags: Callable[[], list[Any]] | None = None) -> None:
    """Fold equal layers of a model from now on. Call again when layers may have changed.

    `flags` returns what a layer hands to its parts beside arguments. With it, equal parts are folded in
    layers that differ, such as attention before dense and before sparse experts."""
    running.folds = True
    for layers in _lists(model):
        if id(layers) not in _stacks:
            above = Stack(list(layers))
            parts = [Stack(one, above, flags) for one in parts_of(layers)] if flags else []
            _stacks[id(layers)] = above, *parts
        for stack in _stacks[id(layers)]:
            stack.begin()


def _lists(module: Any) -> list[Any]:
    """Return the lists of layers that lie in no other one."""
    found: list[Any] = []
    for inner in module.children() if hasattr(module, "children") else ():
        is_one = isinstance(inner, torch.nn.ModuleList) and len(inner) >= FEWEST
        found += [inner] if is_one else _lists(inner)
    return found


def parts_of(layers: Any) -> list[list[Any]]:
    """Return the parts of layers by their names, such as all attentions; None where a layer has none."""
    names = dict.fromkeys(name for one in layers for name, part in one.named_children() if [*part.children()])
    found = [[one._modules.get(name) for one in layers] for name in names]
    return [parts for parts in found if max(Counter(map(id, filter(None, parts))).values()) == 1]


class Ran(NamedTuple):
    key: tuple[Any, ...]
    call: Call | None
    counts: list[list[int]]


class Stack:  # a list of layers, whose calls come here
    def __init__(
        self, layers: list[Any], above: Stack | None = None, flags: Callable[[], list[Any]] = list
    ) -> None:
        """`above`: the layers whose parts these are; None stands for a part that a layer does not have."""
        self._layers, self._above, self._flags = layers, above, flags
        self._seen = dict[Any, tuple[Ran, bool]]()
        for at, layer in enumerate(self._layers):
            if layer is not None:
                layer.__dict__["forward"] = self._watched(at, layer.forward)
        self.begin()

    def begin(self) -> None:
        self._kinds, self._proven, self._misses, self._last = list[int](), set[bool](), 0, len(self._layers)
        self._pass, self._ran, self._same = list[Any](), dict[int, Ran](), Counter[int]()
        self._later, self._pays = set[int](), True

    def _watched(self, at: int, inner: Any) -> Any:
        @functools.wraps(inner)
        def forward(*args: Any, **kwargs: Any) -> Any:
            is_free = not torch.compiler.is_compiling() and (self._above or not running.recorders)
            is_watched = is_free and self._pays and self._misses <= MISSES
            return self._call(at, inner, args, kwargs) if is_watched else inner(*args, **kwargs)

        return forward

    def runs(self) -> set[int]:
        """Return the layers that run in the passes after the first one."""
        alike: dict[int, list[int]] = {}
        for at, kind in enumerate(self._kinds):
            alike.setdefault(kind, []).append(at)
        return {at for kind in alike.values() for at in (*kind[:2], kind[-1])}

    def _begin_pass(self, given: list[Any]) -> None:
        if not self._kinds and self._above:
            self._later = self._above.runs()
            self._kinds = kinds([one if at in self._later else None for at, one in enumerate(self._layers)])
            self._pays = 2 * len(self.runs() & self._later) < len(self._later)
        self._kinds = self._kinds or kinds(self._layers)
        self._seen.clear()
        self._is_proof = small.runs() not in self._proven
        self._proven.add(small.runs())
        now = [small.runs(), *map(fields_of, given)]
        self._before, self._ran = self._ran if now == self._pass else {}, {}
        self._pass = now

    def _call(self, at: int, inner: Any, args: Any, kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        if any(isinstance(one, tuple) or type(one) in SUPPORTED_NODES for one in given):
            given = tree_flatten((args, kwargs))[0]
        given += (flags := self._flags())
        if at <= self._last:
            self._begin_pass(given)
        self._last = at
        if self._above and at not in self._later:  # it is not compared with others
            return inner(*args, **kwargs)
        kind = self._kinds[at]
        # A number that can be a layer's is counted from this layer's.
        forms = [one - at * (one <= len(self._layers)) if type(one) is int else form_of(one) for one in given]
        key = (kind, *streams(), len(args), *kwargs, *forms, *(state(flags).form if flags else ()))
        known, is_settled = self._seen.get(key, (None, False))
        before, is_last = self._before.get(at), kind not in self._kinds[at + 1 :]
        if before and before.key != key:
            before = None
        ran = known if is_settled and not is_last else before if self._same[at] >= SHAPES else None
        if ran and ran.call and not self._is_proof and ran.call.can_be_skipped(given):
            out = _again(ran.call, ran.counts, given)
            running.skipped += self._above is None
        elif is_last and not self._is_proof and not small.runs():  # no pass repeats a captured one
            return inner(*args, **kwargs)
        else:
            out, ran = self._run(key, inner, args, kwargs, given)
        call = ran.call
        if self._is_proof and known and known.call and call != known.call:
            self._kinds[at] = at
        if before and before.call:
            self._same[at] = self._same[at] + 1 if call == before.call else 0
        self._ran[at] = ran
        self._seen[key] = ran, bool(known and call == known.call)
        return out

    def _run(self, key: Any, inner: Any, args: Any, kwargs: Any, given: list[Any]) -> tuple[Any, Ran]:
        running.recorders.append(recorder := Recorder(given))
        try:
            out = inner(*args, **kwargs)
        finally:
            taken = recorder.end()
            running.recorders.pop()
        flags = self._flags()
        are_kept = all(map(operator.is_, flags, given[len(given) - len(flags) :]))
        call = _told(taken, out, given, recorder) if taken is not None and are_kept else None
        self._misses = self._misses + 1 if call is None else 0
        return out, Ran(key, call, recorder.counts)


def _told(taken: Taken, out: Any, given: list[Any], recorder: Recorder) -> Call | None:
    """None where the results, and what the arguments hold, cannot be made without the call."""
    leaves, form = tree_flatten(out)
    # What is returned takes the place of a small object of its kind among the next layer's arguments.
    returned = {type(one): one for one in leaves if is_small(one)}
    roots, before = [returned.get(type(one), one) for one in given], recorder.before
    after = state(roots)
    fresh = after.tensors.keys() - before.tensors.keys()  # which were None
    are_alike = len(after.form) == len(before.form) and len(fresh) == sum(
        one != other for one, other in zip(after.form, before.form, strict=True)
    )
    if not are_alike or any(_is_kept(one, out, given, [*after.tensors]) for one in leaves):
        return None
    results = tuple(_result(one, given, roots, recorder.places) for one in leaves)
    news = {path: _new(get(roots, path), recorder.places) for path in after.tensors}
    stay = {path for path, old in before.tensors.items() if after.tensors[path] == old}
    held = {path: new for path, new in news.items() if new is not NOT_MADE or path not in stay}
    made = [*results, *held.values()]
    swapped = {path for take in taken.takes for step in take.steps if type(step) is Swap for path in step}
    stays = {one.place for one in made if isinstance(one, New)}
    are_made = all(isinstance(one, (*PLAIN, Given, New)) for one in made)
    if not are_made or not swapped <= held.keys() or stays != taken.stays:
        return None
    olds = {path: form_of(None if path in fresh else get(roots, path)) for path in held}
    grown = {path: after.numbers[path] - number for path, number in before.numbers.items()}
    more = {path: one for path, one in grown.items() if one}
    return Call(taken, taken.most(), before.form, results, held, olds, more, form)


def _is_kept(leaf: Any, out: Any, roots: list[Any], paths: list[Path]) -> bool:
    """Whether somebody else than the arguments holds a result."""
    if not isinstance(leaf, torch.Tensor) or any(leaf is one for one in roots):
        return False
    held = sum(get(roots, path) is leaf for path in paths)
    return sys.getrefcount(leaf) > REFERENCES + RETURNED * (leaf is out) + held


def _result(out: Any, given: list[Any], roots: list[Any], places: dict[int, int]) -> Any:
    for at, one in enumerate(roots):
        if one is out:
            return Given(at, ())
    if not isinstance(out, torch.Tensor):
        return out
    for at, one in enumerate(given):
        if isinstance(one, torch.Tensor) and mark(one)[0] == mark(out)[0] and one.dtype is out.dtype:
            return Given(at, (out.shape, out.stride(), out.storage_offset()))
    return _new(out, places)


def _new(one: Any, places: dict[int, int]) -> Any:
    at, offset, form = mark(one)
    is_new = at in places and not (small.runs() and host.is_real(one))
    return New(places[at], offset, form) if is_new else NOT_MADE


def _again(call: Call, counts: list[list[int]], given: list[Any]) -> Any:
    """Return the results without the call."""
    with small.off():
        again = Again(call.taken, call.held, given)
        again.run()
        for path, more in call.more.items():
            put(given, path, get(given, path) + more)
        for one in counts:
            running.count(one)
        results = [again.result(one) for one in call.results]
        again.forget()
        return tree_unflatten(results, call.form)

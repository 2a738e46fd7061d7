"""Watches SGLang's own look-up: which files of Triton configurations a start looks for, for which layers."""

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from runtime.flashinfer.inside.describe import Description
from runtime.ghost.inside.stream import say
from runtime.moe_configs.inside.places import DENSE_LOOKUP, LAYER, MOE_LOOKUP, places

OF_TOKENS = ("hidden_states", "topk_weights", "topk_ids")  # whose first size is the batch
_QUANTISED = "its activations are quantised before the layer"
_looking: list[dict[str, bool]] = []
_layers: list[list[str]] = []


def watch() -> None:
    found = places()
    if found.configs is not None:
        _replace(found.configs, MOE_LOOKUP, functools.partial(_lookup, "moe"))
    if found.dense is not None:
        _replace(found.dense, DENSE_LOOKUP, functools.partial(_lookup, "dense"))
    if found.layer is not None:
        _replace(found.layer, LAYER, _layer)


def _replace(module: Any, name: str, watched: Callable[[Any], Any]) -> None:
    inner = getattr(module, name)
    outer = functools.wraps(inner)(watched(inner))
    for method in ("cache_clear", "cache_info"):
        if hasattr(inner, method):
            setattr(outer, method, getattr(inner, method))
    setattr(module, name, outer)


def _lookup(kind: str, inner: Any) -> Any:
    """Watch a look-up. Each question is reported once, because SGLang also keeps its answer."""
    signature, asked = inspect.signature(inner), dict[str, str]()

    def outer(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        question = repr(given.arguments)
        if question not in asked:
            with _existing() as looked:
                answer = inner(*args, **kwargs)
            asked[question] = next(iter(looked), "")
            if looked:
                _tell(kind, given.arguments, looked)
        else:
            answer = inner(*args, **kwargs)
        if asked[question] and _layers:
            _layers[-1].append(asked[question])
        return answer

    return outer


def _tell(kind: str, given: dict[str, Any], looked: dict[str, bool]) -> None:
    import triton

    plain = {name: one for name, one in given.items() if one is None or isinstance(one, (int, str))}
    found = next((path for path, there in looked.items() if there), "")
    say("config", kind=kind, asked=next(iter(looked)), found=found, triton=triton.__version__, given=plain)


@contextmanager
def _existing() -> Iterator[dict[str, bool]]:
    """Return a dictionary that fills with the files looked for inside, in order, and whether each exists."""
    exists, looked = os.path.exists, dict[str, bool]()

    def watched(path: Any) -> bool:
        there = exists(path)
        if str(path).endswith(".json"):
            _looking[-1][str(path)] = there
        return there

    _looking.append(looked)
    if len(_looking) == 1:
        os.path.exists = watched  # type: ignore[assignment]
    try:
        yield looked
    finally:
        _looking.pop()
        if not _looking:
            os.path.exists = exists


def _layer(inner: Any) -> Any:
    """Watch the layer. One call is reported per kind of layer, whatever its batch."""
    signature, known = inspect.signature(inner), set[str]()

    def outer(*args: Any, **kwargs: Any) -> Any:
        _layers.append([])
        try:
            given = signature.bind(*args, **kwargs).arguments
            kind = repr({name: _kind(name, one) for name, one in given.items()})
            description = Description(lambda _: None)
            told = description.of((), given) if kind not in known else None
            answer = inner(*args, **kwargs)  # in place: afterwards its input is no more what it was
            if told is not None and _layers[-1]:
                known.add(kind)
                _tell_layer(told, description.unknown, given)
            return answer
        finally:
            _layers.pop()

    return outer


def _tell_layer(told: dict[str, Any], unknown: list[str], given: dict[str, Any]) -> None:
    for name in OF_TOKENS:
        told["named"].get(name, {}).get("tensor", {}).pop("values", None)
    why = f"it was given {', '.join(sorted(set(unknown)))}" if unknown else ""
    why = why or (_QUANTISED if given.get("a1_q") is not None else "")
    files = list(dict.fromkeys(_layers[-1]))
    say("layer", named=told["named"], storages=told["storages"], files=files, unreplayable=why)


def _kind(name: str, value: Any) -> Any:
    shape = getattr(value, "shape", None)
    if shape is None:
        return value
    return value.dtype, tuple(shape[1:] if name in OF_TOKENS else shape)

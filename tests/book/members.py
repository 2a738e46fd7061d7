"""Each member of each family's config.json left out or told otherwise, one at a time, and its model then; of
those that it lacks, each that its family looks for."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from runtime.server.checkpoint import Checkpoint
from runtime.server.config import ModelConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from tests.book.cases import checkpoint_of, checkpoints
from tests.book.plain import plain, refusal, told
from tests.book.rows import Row
from tests.book.words import of_members
from tests.sweeps import is_taken

_LEFT_OUT = object()
_AS_IT_IS = "as it is"
_LAYERS, _PAIRS = 7, 24
_BESIDE = ("dtype", "context_length", "context_length_from", "has_attention_sinks", "has_wide_keys")
_NOT_BY_LAYER = ("time_step_limit",)
_WORDS = {
    **dict.fromkeys(("rope_type", "type"), ("default", "linear", "yarn", "llama3", "dynamic", "longrope")),
    **dict.fromkeys(("hidden_act", "hidden_activation"), ("silu", "gelu_pytorch_tanh", "relu2")),
    **dict.fromkeys(("scoring_func", "score_function"), ("sigmoid", "softmax")),
    "norm_type": ("rms_norm", "layer_norm"),
}


@cache
def names() -> tuple[str, ...]:
    """A small one of each family, where there is one."""
    known = [*checkpoints()]
    small = {checkpoints()[name]["model_type"] for name in known if name.startswith("small/")}
    return tuple(
        name for name in known if name.startswith("small/") or checkpoints()[name]["model_type"] not in small
    )


def members(name: str) -> Iterator[Row]:
    whole = _longer(checkpoint_of(name).hf)
    shaped = _shaped(whole)
    base = shaped(whole)
    yield _AS_IT_IS, base
    for path, value in [*_paths(whole), *((path, _LEFT_OUT) for path in _lacking(whole))]:
        for other in _others(path[-1], value):
            shown = "left out" if other is _LEFT_OUT else other
            row = f"{'.'.join(path)} {shown!r}"
            if not is_taken(row):
                continue
            now = shaped(_with(whole, path, other))
            apart = now if "refused" in now else dict(_changes(base, now))
            if apart:
                yield row, apart
    yield from _pairs(name, whole, base, shaped)


def _pairs(
    name: str, whole: Mapping[str, Any], base: dict[str, Any], shaped: Callable[[Mapping[str, Any]], Any]
) -> Iterator[Row]:
    """Two members at a time, by chance: some rules look at both."""
    chance, paths = random.Random(name), [pair for pair in _paths(whole) if not isinstance(pair[1], Mapping)]
    for number in range(_PAIRS):
        changed, said = dict(whole), []
        for path, value in chance.sample(paths, min(2, len(paths))):
            other = chance.choice(
                _others(path[-1], value)[: -1 if isinstance(value, (bool, float, int)) else None]
            )
            changed = _with(changed, path, other)
            said.append(f"{'.'.join(path)} {'left out' if other is _LEFT_OUT else repr(other)}")
        row = f"{number}: {', '.join(said)}"
        if not is_taken(row):
            continue
        now = shaped(changed)
        apart = now if "refused" in now else dict(_changes(base, now))
        if apart:
            yield row, apart


def _longer(hf: Mapping[str, Any]) -> dict[str, Any]:
    """With so many layers that kinds of them alternate, by the lists that name each, too."""
    count, found = hf.get("num_hidden_layers"), dict(hf)
    for name, one in hf.items():
        if isinstance(one, Mapping) and "num_hidden_layers" in one:
            found[name] = _longer(one)
        elif isinstance(one, list) and len(one) == count and name not in _NOT_BY_LAYER:
            found[name] = (one * _LAYERS)[:_LAYERS]
        elif isinstance(one, Mapping) and count and {*one} & {*map(str, range(count))}:
            of_each = {str(layer): one.get(str(layer % count)) for layer in range(_LAYERS)}
            found[name] = {layer: told_of for layer, told_of in of_each.items() if told_of is not None}
    return {**found, "num_hidden_layers": _LAYERS} if count else found


_Path = tuple[str, ...]


class _Noting(dict[str, Any]):
    """Notes what it is asked for and lacks."""

    def __init__(self, hf: Mapping[str, Any], path: _Path, lacks: dict[_Path, None]) -> None:
        super().__init__(hf)
        for name, one in hf.items():
            if isinstance(one, dict):
                self[name] = _Noting(one, (*path, name), lacks)
        self._path, self._lacks = path, lacks

    def __contains__(self, name: object) -> bool:
        known = super().__contains__(name)
        if not known:
            self._lacks.setdefault((*self._path, str(name)))
        return known

    def get(self, name: str, otherwise: Any = None) -> Any:
        return super().get(name, otherwise) if name in self else otherwise


def _lacking(hf: Mapping[str, Any]) -> list[_Path]:
    """What a family looks for in vain."""
    found: dict[_Path, None] = {}
    told(model_config, _Noting(hf, (), found))
    return [*found]


def _shaped(whole: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Most changes make the same model: it is written out once."""
    try:
        same = model_config(whole)
        as_it_is = _shape(same)
    except ConfigError:
        same, as_it_is = None, {}

    def shape(hf: Mapping[str, Any]) -> dict[str, Any]:
        try:
            model, known = model_config(hf), Checkpoint(hf)
        except ConfigError as error:
            return {"refused": refusal(error)}
        found = as_it_is if model == same else _shape(model)
        return {**found, "checkpoint": {name: told(getattr, known, name) for name in _BESIDE}}

    return shape


def _shape(model: ModelConfig) -> dict[str, Any]:
    found = dict(plain(model))
    if model.recurrent is not None:
        found["state"] = [told(model.recurrent.state_shape, ranks) for ranks in (1, 2)]
    if model.encoder is not None:
        ranks = (1, 2, 3)
        found["parts"] = plain([[told(one.of_rank, rank) for rank in ranks] for one in model.encoder.weights])
    return found


def _changes(then: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """As they are now."""
    if then == now:
        return
    if isinstance(then, dict) and isinstance(now, dict):
        for member in dict.fromkeys((*then, *now)):
            yield from _changes(then.get(member), now.get(member), f"{name}.{member}".lstrip("."))
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now) > 4:
        for number, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from _changes(one, other, f"{name}[{number}]")
    else:
        yield name, now


def _paths(hf: Mapping[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in hf.items():
        yield (*before, name), value
        if isinstance(value, Mapping):
            yield from _paths(value, (*before, name))


def _others(name: str, value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [_LEFT_OUT, not value, "x"]
    if isinstance(value, (int, float)):
        others = (value + 1, 2 * value, 0)
        return [_LEFT_OUT, *{repr(one): one for one in others if one != value}.values(), "x"]
    words = dict.fromkeys((*_WORDS.get(name, ()), *of_members().get(name, ())))
    if isinstance(value, str):
        return [_LEFT_OUT, 5, "x", *(word for word in words if word != value)]
    if isinstance(value, list):
        return [_LEFT_OUT, value[:-1], value[1:] + value[:1], [5]]
    if isinstance(value, Mapping):
        return [_LEFT_OUT, "x"]
    return [1, 4.5, True, "x", *words]


def _with(hf: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    first, *rest = path
    found = dict(hf)
    if rest:
        found[first] = _with(found[first], tuple(rest), value)
    elif value is _LEFT_OUT:
        del found[first]
    else:
        found[first] = value
    return found


MEMBERS_OF = {f"members of {name}": partial(members, name) for name in names()}


def is_made(row: str) -> bool:
    return row == _AS_IT_IS or is_taken(row)

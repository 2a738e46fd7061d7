"""Layers that run several times, on the weights of the first: each time with keys and values of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import TypeVar

from torch import nn

from runtime.models.build import Build
from runtime.models.earlier_round import EarlierRound
from runtime.models.gqa import GroupedQueryAttention
from runtime.models.layer import DecoderLayer
from runtime.server.config import ModelConfig
from runtime.server.layer_kinds import layer_kind

Module = TypeVar("Module", bound=nn.Module)


def again(build: Build, number: int, stack: Sequence[DecoderLayer]) -> DecoderLayer:
    """Of a later round, where its first stands in `stack`."""
    model, own = build.model, number % build.model.own_layers
    same = [one for one in stack if one.number % model.own_layers == own]
    first = same[0]
    assert isinstance(first.mixer, GroupedQueryAttention)
    made, mixer = _beside(first), _beside(first.mixer)
    window = model.layer_attention(number).window
    mixer.layer = replace(mixer.layer, layer_id=number, window=window)
    if model.gates_rounds:
        gates = next((one.gates for one in map(_earlier, same) if one is not None), None)
        mixer.earlier = EarlierRound(build, own, gates)
    made.mixer, made.number, made.kind = mixer, number, layer_kind(model, number)
    return made


def parts_of_rounds(
    model: ModelConfig, stack: Sequence[DecoderLayer]
) -> Iterator[DecoderLayer | EarlierRound]:
    """Those that have weights of their own."""
    for layer in stack:
        if layer.number < model.own_layers:
            yield layer
        elif layer.number < 2 * model.own_layers and (earlier := _earlier(layer)) is not None:
            yield earlier


def _earlier(layer: DecoderLayer) -> EarlierRound | None:
    return layer.mixer.earlier if isinstance(layer.mixer, GroupedQueryAttention) else None


def _beside(module: Module) -> Module:
    """Of the same parts, and free to have another in their place."""
    made = copy(module)
    made._modules = dict(module._modules)
    return made

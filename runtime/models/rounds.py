"""Layers that run several times, on the weights of the first: each time with keys and values of their own."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TypeVar

from torch import nn

from runtime.models.gqa import GroupedQueryAttention
from runtime.models.layer import DecoderLayer
from runtime.server.config import ModelConfig
from runtime.server.layer_kinds import layer_kind

Module = TypeVar("Module", bound=nn.Module)


def again(model: ModelConfig, number: int, stack: list[DecoderLayer]) -> DecoderLayer:
    """Of a later round, where its first stands in `stack`."""
    first = next(one for one in stack if one.number == number % model.own_layers)
    assert isinstance(first.mixer, GroupedQueryAttention)
    made, mixer = _beside(first), _beside(first.mixer)
    mixer.layer = replace(mixer.layer, layer_id=number)
    made.mixer, made.number, made.kind = mixer, number, layer_kind(model, number)
    return made


def _beside(module: Module) -> Module:
    """Of the same parts, and free to have another in their place."""
    made = copy(module)
    made._modules = dict(module._modules)
    return made

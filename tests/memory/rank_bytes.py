"""What a rank's layers hold, by one of each kind: models of a hundred layers have three or four."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import nn

from runtime.forward.comm import Communicator
from runtime.layers.linear import Linear
from runtime.layers.quantization import Plain
from runtime.models.decoder import Decoder
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.layer_kinds import layer_kind

META = torch.device("meta")


def bytes_of(module: nn.Module) -> int:
    return sum(one.nbytes for one in module.parameters())


def values_made(rank: Decoder) -> int:
    """Of all matrices that are quantized, whether they are by now or not."""
    linears = (one for one in rank.modules() if isinstance(one, Linear) and not isinstance(one.scheme, Plain))
    return sum(one.rows * one.matrix.columns for one in linears)


def bytes_by_kind(model: ModelConfig, runtime: RuntimeConfig, comm: Communicator) -> int:
    """Where layers share weights, or look at one another while they are made, all of them are."""
    kinds: dict[object, list[int]] = defaultdict(list)
    for layer in range(model.num_layers):
        kinds[layer_kind(model, layer)].append(layer)
    ropes = [one.rope for one in model.attention.values() if one.rope is not None]
    if (
        (model.moe is not None and model.moe.banks)
        or model.rounds > 1
        or any(rope.mixed is not None for rope in ropes)
    ):
        return bytes_of(Decoder(model, runtime, comm, META, range(model.num_layers)))
    rank = Decoder(model, runtime, comm, META, sorted(layers[0] for layers in kinds.values()))
    alike = (len(kinds[layer_kind(model, layer.number)]) - 1 for layer in rank._stack)
    more = sum(count * bytes_of(layer) for count, layer in zip(alike, rank._stack, strict=True))
    return bytes_of(rank) + more

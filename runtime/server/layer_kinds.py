"""What tells a model's layers apart."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.ngrams import has_ngrams


def layer_kind(model: ModelConfig, layer: int) -> tuple[object, ...]:
    """Layers of one kind run alike and are as large."""
    stored = model.quantized.of_layer(model.layer_name(layer))
    kinds: tuple[object, ...] = (model.layer_kinds[layer], model.attention_kinds[layer], stored)
    kinds = (*kinds, model.layer_caps(layer), has_ngrams(model.ngrams, layer))
    if model.mlp_sizes or model.key_layers:
        kinds = (*kinds, model.mlp_size(layer), model.key_layer(layer) == layer)
    if model.skips is not None:
        kinds = (*kinds, model.skips.of_layer(layer))
    if model.shares_choice(layer):
        kinds = (*kinds, "sharing")
    if model.expert_sizes:
        kinds = (*kinds, model.expert_sizes[layer])
    if layer >= model.own_layers:
        kinds = (*kinds, "again")
    if layer == 0 and (model.entry is not None or model.norms in ("scaled", "behind", "late")):
        kinds = (*kinds, "first")
    return (*kinds, "hashed") if model.moe is not None and model.moe.is_hashed(layer) else kinds

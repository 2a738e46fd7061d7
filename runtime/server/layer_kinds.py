"""What tells a model's layers apart."""

from __future__ import annotations

from runtime.server.config import ModelConfig


def layer_kind(model: ModelConfig, layer: int) -> tuple[object, ...]:
    """Layers of one kind run alike and are as large."""
    stored = model.quantized.of_layer(model.layer_name(layer))
    return model.layer_kinds[layer], model.attention_kinds[layer], stored

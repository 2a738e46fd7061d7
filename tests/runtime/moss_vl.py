"""MOSS-VL's text without images: a Qwen3 of those of its layers that attend to text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from tests.runtime.told import Randomize, Tensors, Told, shared

_SEEING = "cross_attention_layers"
_GATES = ("cross_attn_attn_gate", "cross_attn_mlp_gate")


class MossVLTextConfig(PreTrainedConfig):
    model_type = "moss_vl_text"
    vocab_size: int = 151936
    hidden_size: int = 4096
    intermediate_size: int = 12288
    num_hidden_layers: int = 48
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    head_dim: int = 128
    hidden_act: str = "silu"
    max_position_embeddings: int = 262144
    rms_norm_eps: float = 1e-6
    rope_theta: float = 5000000.0
    rope_scaling: dict[str, Any] | None = None
    attention_bias: bool = False
    tie_word_embeddings: bool = False
    cross_attention_layers: list[int] | None = None


def config(told: Told) -> Told:
    rope = {**(told.get("rope_scaling") or {}), "rope_theta": told["rope_theta"]}
    return {
        **shared(told),
        **{one: told[one] for one in ("head_dim", "attention_bias") if told.get(one) is not None},
        "rope_parameters": {"rope_type": "default", **rope},
        "num_hidden_layers": len(_reading(told)),
    }


def _reading(told: Told) -> list[int]:
    return [layer for layer in range(told["num_hidden_layers"]) if layer not in told[_SEEING]]


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    """Layers that attend to images have as many matrices as others, and two gates."""
    seeing = [layer for layer in told[_SEEING] if layer < told["num_hidden_layers"]]
    model.seeing = nn.ModuleDict(
        {str(layer): type(model.model.layers[0])(model.config, 0) for layer in seeing}
    )
    for layer in model.seeing.values():
        for gate in _GATES:
            layer.register_parameter(gate, nn.Parameter(torch.zeros(1)))
    randomize(model.seeing)
    model.seeing.requires_grad_(False)


def tensors(found: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    numbers = _reading(told)
    for name, tensor in found.items():
        if name.startswith("seeing."):
            yield name.replace("seeing.", "model.layers.").replace(".self_attn.", ".cross_attn."), tensor
            continue
        stem, _, rest = name.partition("model.layers.")
        number, _, part = rest.partition(".")
        yield (f"{stem}model.layers.{numbers[int(number)]}.{part}" if rest else name), tensor

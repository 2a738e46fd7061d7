"""Nanbeige: the config class of its checkpoints, and a Llama that has each layer once a round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedConfig

from tests.runtime.told import Randomize, Tensors, Told, shared


class NanbeigeConfig(PreTrainedConfig):
    model_type = "nanbeige"
    vocab_size: int = 166144
    hidden_size: int = 3072
    intermediate_size: int = 10752
    num_hidden_layers: int = 22
    num_attention_heads: int = 48
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 4096
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-5
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2
    pretraining_tp: int = 1
    tie_word_embeddings: bool = False
    rope_theta: float = 50000.0
    rope_scaling: dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0
    num_loops: int = 2
    loop_loss_weights: list[float] | None = None
    skip_loop_final_norm: bool = False


def config(told: Told) -> Told:
    """A Llama's."""
    rope = {"rope_type": "default", "rope_theta": told.get("rope_theta", 50000.0)}
    width = told.get("head_dim") or told["hidden_size"] // told["num_attention_heads"]
    layers = told["num_hidden_layers"] * told.get("num_loops", 2)
    sizes = {**shared(told), "num_hidden_layers": layers, "head_dim": width, "rope_parameters": rope}
    return {**sizes, "num_key_value_heads": told.get("num_key_value_heads") or told["num_attention_heads"]}


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    layers, own = model.model.layers, told["num_hidden_layers"]
    for number in range(own, len(layers)):
        layers[number].load_state_dict(layers[number % own].state_dict())
        if number % own == 0 and not told.get("skip_loop_final_norm"):
            layers[number].register_forward_pre_hook(
                lambda _, given: (model.model.norm(given[0]), *given[1:])
            )


def tensors(found: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in found.items():
        if not name.startswith("model.layers.") or int(name.split(".")[2]) < told["num_hidden_layers"]:
            yield name, tensor

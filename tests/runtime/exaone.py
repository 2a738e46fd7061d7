"""EXAONE 3: the config class of its checkpoints, and a Llama's tensors under their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from transformers import PreTrainedConfig

from tests.runtime.told import Tensors, Told, shared


class ExaoneConfig(PreTrainedConfig):
    model_type = "exaone"
    attribute_map: ClassVar[dict[str, str]] = {"num_hidden_layers": "num_layers"}
    vocab_size: int = 102400
    max_position_embeddings: int = 2048
    hidden_size: int = 2048
    num_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    intermediate_size: int | None = None
    activation_function: str = "silu"
    rope_parameters: dict[str, Any] | None = None
    embed_dropout: float = 0.0
    attention_dropout: float = 0.0
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    use_cache: bool = True
    bos_token_id: int | None = 0
    eos_token_id: int | None = 2
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        self.intermediate_size = self.intermediate_size or 4 * self.hidden_size
        super().__post_init__(**kwargs)


def config(told: Told) -> Told:
    """A Llama's."""
    rope = {"rope_type": "default", **(told.get("rope_scaling") or {})}
    return {
        "intermediate_size": 4 * told["hidden_size"],
        "tie_word_embeddings": True,
        **shared(told),
        "num_hidden_layers": told.get("num_hidden_layers", told["num_layers"]),
        "rms_norm_eps": told["layer_norm_epsilon"],
        "hidden_act": told.get("activation_function", "silu"),
        "rope_parameters": {"rope_theta": told.get("rope_theta", 10000.0), **rope},
    }


_NAMES = {
    "model.embed_tokens": "transformer.wte",
    "model.norm": "transformer.ln_f",
    "model.layers": "transformer.h",
    ".input_layernorm": ".ln_1",
    ".post_attention_layernorm": ".ln_2",
    ".self_attn.o_proj": ".attn.attention.out_proj",
    ".self_attn.": ".attn.attention.",
    ".mlp.gate_proj": ".mlp.c_fc_0",
    ".mlp.up_proj": ".mlp.c_fc_1",
    ".mlp.down_proj": ".mlp.c_proj",
}


def tensors(found: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in found.items():
        for own, other in _NAMES.items():
            name = name.replace(own, other)
        yield name, tensor

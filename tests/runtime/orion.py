"""Orion: the config class of its checkpoints, and what a StableLM of the same mathematics is told."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from tests.runtime.told import Told, shared


class OrionConfig(PreTrainedConfig):
    model_type = "orion"
    vocab_size: int = 84608
    hidden_size: int = 4096
    intermediate_size: int = 15360
    num_hidden_layers: int = 40
    num_attention_heads: int = 40
    num_key_value_heads: int | None = 40
    hidden_act: str = "silu"
    max_position_embeddings: int = 4096
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-5
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2
    pretraining_tp: int = 1
    tie_word_embeddings: bool = False
    rope_parameters: dict[str, Any] | None = None
    attention_bias: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        super().__post_init__(**kwargs)


def config(told: Told) -> Told:
    """A StableLM's, which turns whole heads."""
    rope = {"rope_type": "default", **(told.get("rope_scaling") or {})}
    rope = {"partial_rotary_factor": 1.0, "rope_theta": told.get("rope_theta", 10000.0), **rope}
    return {
        **shared(told),
        "layer_norm_eps": told["rms_norm_eps"],
        "partial_rotary_factor": 1.0,
        "rope_parameters": rope,
        "use_qkv_bias": False,
    }

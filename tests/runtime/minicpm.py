"""MiniCPM: the config class of its checkpoints, and what a Granite of the same mathematics is told."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from tests.runtime.told import Told, shared


class MiniCPMConfig(PreTrainedConfig):
    model_type = "minicpm"
    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2
    pretraining_tp: int = 1
    tie_word_embeddings: bool = True
    rope_parameters: dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0
    scale_emb: float = 1
    dim_model_base: int = 1
    scale_depth: float = 1
    mup_denominator: int = 32
    sparse_config: dict[str, Any] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        super().__post_init__(**kwargs)


def config(told: Told) -> Told:
    """A Granite's."""
    rope = {"rope_type": "default", **(told.get("rope_scaling") or {})}
    return {
        "tie_word_embeddings": True,
        **shared(told),
        "rope_parameters": {"rope_theta": told.get("rope_theta", 10000.0), **rope},
        "embedding_multiplier": told["scale_emb"],
        "residual_multiplier": told["scale_depth"] / told["num_hidden_layers"] ** 0.5,
        "logits_scaling": told["hidden_size"] / told["dim_model_base"],
        "attention_multiplier": (told["hidden_size"] / told["num_attention_heads"]) ** -0.5,
    }

"""Solar: the config class of its checkpoints, and a Llama whose layers are given what they are."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedConfig

from tests.runtime.told import Randomize, Told, shared


class SolarConfig(PreTrainedConfig):
    model_type = "solar"
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
    tie_word_embeddings: bool = False
    rope_parameters: dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0
    mlp_bias: bool = False
    sliding_window: int | None = 2047
    bskcn_1: list[int] | None = None
    bskcn_2: list[int] | None = None
    bskcn_3: list[int] | None = None
    bskcn_4: list[int] | None = None
    bskcn_tv: list[float] | None = None


def config(told: Told) -> Told:
    """A Llama's."""
    rope = {"rope_type": "default", **(told.get("rope_scaling") or {})}
    return {
        **shared(told),
        **{one: told[one] for one in ("head_dim", "attention_bias") if told.get(one) is not None},
        "rope_parameters": {"rope_theta": told.get("rope_theta", 10000.0), **rope},
    }


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    kept: dict[str, torch.Tensor] = {}
    share = told["bskcn_tv"][1]

    def given(number: int, hidden: torch.Tensor) -> torch.Tensor:
        for name in ("bskcn_1", "bskcn_2"):
            if number in told[name]:
                kept[name] = hidden
        for name, other in (("bskcn_3", "bskcn_1"), ("bskcn_4", "bskcn_2")):
            if number in told[name]:
                hidden = kept[other] * share + hidden * (1 - share)
        return hidden

    for number, layer in enumerate(model.model.layers):
        layer.register_forward_pre_hook(lambda _, args, number=number: (given(number, args[0]), *args[1:]))

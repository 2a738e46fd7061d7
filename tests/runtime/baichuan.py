"""Baichuan 2 as a Llama whose head has rows of one length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from transformers import PreTrainedConfig

from tests.runtime.told import Randomize, Tensors, Told, joined, shared


class BaichuanConfig(PreTrainedConfig):
    """The file that comes with its checkpoints."""

    model_type = "baichuan"
    vocab_size: int = 125696
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    hidden_act: str = "silu"
    max_position_embeddings: int = 4096
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2
    tie_word_embeddings: bool = False
    z_loss_weight: float = 0.0
    rope_parameters: dict[str, Any] | None = None


def sizes(told: Told) -> Told:
    rope = {"rope_type": "default", **(told.get("rope_scaling") or {})}
    return {**shared(told), "rope_parameters": {"rope_theta": told.get("rope_theta", 10000.0), **rope}}


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    if told["vocab_size"] == 125696:
        model.lm_head.weight.data = F.normalize(model.lm_head.weight.data)


def tensors(held: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    """Rows of a head that SGLang makes one long are of other lengths in a file."""
    for name, tensor in joined(held):
        if name == "lm_head.weight" and told["vocab_size"] == 125696:
            tensor = tensor * (1 + torch.arange(len(tensor)) % 3)[:, None]
        yield name.replace(".q_proj", ".W_pack"), tensor

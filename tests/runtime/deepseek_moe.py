"""DeepSeek-MoE as a Qwen2-MoE, whose shared expert counts half where its gate says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedConfig

from tests.runtime.told import Randomize, Tensors, Told, each_expert, shared


class DeepseekConfig(PreTrainedConfig):
    """The file that comes with its checkpoints."""

    model_type = "deepseek"
    vocab_size: int = 102400
    hidden_size: int = 4096
    intermediate_size: int = 11008
    moe_intermediate_size: int = 1407
    num_hidden_layers: int = 30
    num_attention_heads: int = 32
    num_key_value_heads: int | None = 32
    n_shared_experts: int | None = None
    n_routed_experts: int | None = None
    num_experts_per_tok: int | None = None
    moe_layer_freq: int = 1
    first_k_dense_replace: int = 0
    norm_topk_prob: bool = False
    scoring_func: str = "softmax"
    aux_loss_alpha: float = 0.001
    seq_aux: bool = True
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = 100000
    eos_token_id: int | None = 100001
    pretraining_tp: int = 1
    tie_word_embeddings: bool = False
    rope_parameters: dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0


def sizes(told: Told) -> Told:
    layers = range(told["num_hidden_layers"])
    first, every = told.get("first_k_dense_replace", 0), told.get("moe_layer_freq", 1)
    experts = told.get("n_routed_experts")
    dense = [i for i in layers if not experts or i < first or i % every]
    rope = {"rope_type": "default", **(told.get("rope_scaling") or {})}
    return {
        **shared(told),
        "num_experts": experts or 1,
        "num_experts_per_tok": told["num_experts_per_tok"] if experts else 1,
        "moe_intermediate_size": told["moe_intermediate_size"],
        "shared_expert_intermediate_size": _width(told) or 1,
        "norm_topk_prob": told.get("norm_topk_prob", False),
        "mlp_only_layers": dense,
        "qkv_bias": False,
        "rope_parameters": {"rope_theta": told.get("rope_theta", 10000.0), **rope},
    }


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    for layer in model.model.layers:
        if hasattr(layer.mlp, "shared_expert_gate"):
            layer.mlp.shared_expert_gate.weight.data.zero_()
            layer.mlp.shared_expert.down_proj.weight.data.mul_(bool(_width(told)))


def tensors(held: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in held.items():
        stem, _, kind = name.rpartition(".")
        if kind in ("gate_up_proj", "down_proj"):
            yield from each_expert(stem, kind, tensor)
        elif ".shared_expert." not in name:
            if "shared_expert_gate" not in name:
                yield name, tensor
        elif _width(told):
            halved = tensor * 0.5 if name.endswith("down_proj.weight") else tensor
            yield name.replace(".shared_expert.", ".shared_experts."), halved


def _width(told: Told) -> int:
    return int(told["moe_intermediate_size"] * (told.get("n_shared_experts") or 0))

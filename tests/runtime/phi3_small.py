"""Phi 3 small: the config class of its checkpoints, and a StarCoder2 of other MLPs, as SGLang's class is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from tests.runtime.told import Randomize, Tensors, Told, renamed


class Phi3SmallConfig(PreTrainedConfig):
    model_type = "phi3small"
    vocab_size: int = 100352
    max_position_embeddings: int = 8192
    rope_embedding_base: float = 10**6
    rope_position_scale: float = 1.0
    rope_scaling: dict[str, Any] | None = None
    hidden_size: int = 4096
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    hidden_act: str = "gegelu"
    gegelu_limit: float = 20.0
    gegelu_pad_to_256: bool = True
    ff_dim_multiplier: int | None = None
    ff_intermediate_size: int | None = 14336
    blocksparse_homo_head_pattern: bool = False
    blocksparse_block_size: int = 64
    blocksparse_num_local_blocks: int = 16
    blocksparse_vert_stride: int = 8
    blocksparse_triton_kernel_block_size: int = 64
    dense_attention_every_n_layers: int | None = 2
    embedding_dropout_prob: float = 0.1
    attention_dropout_prob: float = 0.0
    ffn_dropout_prob: float = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    mup_use_scaling: bool = True
    mup_width_multiplier: float = 8.0
    mup_embedding_multiplier: float | None = 10.0
    mup_attn_multiplier: float = 1.0
    use_cache: bool = True
    bos_token_id: int | None = 100257
    eos_token_id: int | None = 100257
    reorder_and_upcast_attn: bool = False
    pad_sequence_to_multiple_of_64: bool = True
    tie_word_embeddings: bool = True  # as SGLang takes it where nobody says


class MLP(nn.Module):
    """Gates and ups take turns."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(width, 2 * inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.up_proj(x).unflatten(-1, (-1, 2)).unbind(-1)
        return self.down_proj(gate * torch.sigmoid(1.702 * gate) * (up + 1))


def _inner(told: Told) -> int:
    if told.get("ff_dim_multiplier") is None:
        return int(told["ff_intermediate_size"])
    inner = told["ff_dim_multiplier"] * (told["hidden_size"] // 3) * 2
    return inner + -inner % 256 if told.get("gegelu_pad_to_256", True) else inner


def config(told: Told) -> Told:
    """A StarCoder2's."""
    same = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    return {
        **{name: told[name] for name in same},
        "intermediate_size": 8,
        "max_position_embeddings": told.get("max_position_embeddings", 8192),
        "norm_epsilon": told.get("layer_norm_epsilon", 1e-5),
        "tie_word_embeddings": told.get("tie_word_embeddings", True),
        "rope_parameters": {"rope_type": "default", "rope_theta": told.get("rope_embedding_base", 10**6)},
        **{"use_bias": True, "sliding_window": None, "pad_token_id": None},
    }


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    times = told.get("mup_embedding_multiplier", 10.0)
    if times is not None and times > 0:
        model.model.embed_tokens.register_forward_hook(lambda _, __, rows: rows * times)
    for layer in model.model.layers:
        layer.mlp = MLP(told["hidden_size"], _inner(told))
        randomize(layer.mlp)
        layer.mlp.requires_grad_(False)
        width = layer.self_attn.head_dim
        if told.get("mup_use_scaling", True):
            layer.self_attn.scaling = told.get("mup_attn_multiplier", 1.0) / width


_NAMES = {"model.norm": "model.final_layernorm", ".o_proj": ".dense", ".q_proj": ".query_key_value"}


def tensors(found: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    """Each KV head stands behind the queries that ask it."""
    groups, width = told["num_key_value_heads"], told["hidden_size"] // told["num_attention_heads"]
    for name, tensor in found.items():
        if ".q_proj" in name:
            parts = [found[name.replace(".q_proj", f".{one}_proj")] for one in "qkv"]
            tensor = torch.cat([part.unflatten(0, (groups, -1, width)) for part in parts], dim=1).flatten(
                0, 2
            )
        if ".k_proj" not in name and ".v_proj" not in name:
            yield renamed(name, _NAMES), tensor


def as_published(hf: dict[str, Any]) -> dict[str, Any]:
    """With all that SGLang's class asks for, and one width of its MLPs."""
    own = Phi3SmallConfig(**hf)
    told = {name: getattr(own, name) for name in Phi3SmallConfig.__annotations__ if name != "rope_scaling"}
    return {**told, **({"ff_intermediate_size": None} if told["ff_dim_multiplier"] else {})}

"""ChatGLM: the config class of its checkpoints, and GLM's tensors under their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from transformers import PreTrainedConfig

from tests.runtime.told import Tensors, Told, joined, renamed


class ChatGLMConfig(PreTrainedConfig):
    model_type = "chatglm"
    attribute_map: ClassVar[dict[str, str]] = {
        "num_hidden_layers": "num_layers",
        "n_head_kv": "multi_query_group_num",
        "intermediate_size": "ffn_hidden_size",
        "num_key_value_heads": "multi_query_group_num",
        "vocab_size": "padded_vocab_size",
        "max_position_embeddings": "seq_length",
    }
    num_layers: int = 28
    padded_vocab_size: int = 65024
    hidden_size: int = 4096
    ffn_hidden_size: int = 13696
    kv_channels: int = 128
    num_attention_heads: int = 32
    seq_length: int = 2048
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    layernorm_epsilon: float = 1e-5
    rmsnorm: bool = True
    apply_residual_connection_post_layernorm: bool = False
    post_layer_norm: bool = True
    add_bias_linear: bool = False
    add_qkv_bias: bool = False
    interleaved_qkv: bool = False
    bias_dropout_fusion: bool = True
    multi_query_attention: bool = False
    multi_query_group_num: int = 1
    rope_ratio: float = 1
    apply_query_key_layer_scaling: bool = True
    attention_softmax_in_fp32: bool = True
    fp32_residual_connection: bool = False
    quantization_bit: int = 0
    pre_seq_len: int | None = None
    prefix_projection: bool = False
    tie_word_embeddings: bool = False


def config(told: Told) -> Told:
    """A GLM's."""
    heads = told["num_attention_heads"]
    width = told["hidden_size"] // heads
    rope = {"rope_type": "default", "rope_theta": 1e4 * told["rope_ratio"], "partial_rotary_factor": 0.5}
    return {
        "vocab_size": told["padded_vocab_size"],
        "hidden_size": told["hidden_size"],
        "intermediate_size": told["ffn_hidden_size"],
        "num_hidden_layers": told["num_layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": told["multi_query_group_num"] if told["multi_query_attention"] else heads,
        "head_dim": width,
        "attention_bias": told["add_qkv_bias"],
        "max_position_embeddings": told["seq_length"],
        "rms_norm_eps": told["layernorm_epsilon"],
        "rope_parameters": rope,
        "pad_token_id": None,
    }


_NAMES = {
    "model.embed_tokens": "transformer.embedding.word_embeddings",
    "model.norm": "transformer.encoder.final_layernorm",
    "model.layers": "transformer.encoder.layers",
    "lm_head": "transformer.output_layer",
    ".self_attn.o_proj": ".self_attention.dense",
    ".self_attn.q_proj": ".self_attention.query_key_value",
    ".mlp.gate_up_proj": ".mlp.dense_h_to_4h",
    ".mlp.down_proj": ".mlp.dense_4h_to_h",
}


def tensors(found: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in joined(found):
        yield renamed(name, _NAMES), tensor


def as_published(hf: dict[str, Any]) -> dict[str, Any]:
    """Under its own names, with how wide its heads are."""
    own = ChatGLMConfig(**hf)
    told = {name: getattr(own, name) for name in ChatGLMConfig.__annotations__ if name != "attribute_map"}
    return {**told, "kv_channels": hf["hidden_size"] // hf["num_attention_heads"]}

"""XVERSE, Tele-FLM and Qwen 1: the config classes of their checkpoints, and what a class of the same
mathematics is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedConfig

from tests.runtime.told import Tensors, Told, joined, renamed, shared


class XverseConfig(PreTrainedConfig):
    model_type = "xverse"
    vocab_size: int = 100278
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    hidden_act: str = "silu"
    max_position_embeddings: int = 8192
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2
    tie_word_embeddings: bool = False
    rope_parameters: dict[str, Any] | None = None


class TeleFLMConfig(PreTrainedConfig):
    """Llama's, and its scales."""

    model_type = "TeleFLM"
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
    use_mup: bool = False
    mup_scale_factor: float = 1.0
    input_mult: float = 1.0
    output_mult: float = 1.0

    def __post_init__(self, **kwargs: Any) -> None:
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        super().__post_init__(**kwargs)


class QWenConfig(PreTrainedConfig):
    """Of Qwen 1."""

    model_type = "qwen"
    vocab_size: int = 151936
    hidden_size: int = 4096
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    emb_dropout_prob: float = 0.0
    attn_dropout_prob: float = 0.0
    layer_norm_epsilon: float = 1e-6
    initializer_range: float = 0.02
    max_position_embeddings: int = 8192
    scale_attn_weights: bool = True
    use_cache: bool = True
    bf16: bool = False
    fp16: bool = False
    fp32: bool = False
    kv_channels: int = 128
    rotary_pct: float = 1.0
    rotary_emb_base: int = 10000
    use_dynamic_ntk: bool = True
    use_logn_attn: bool = True
    use_flash_attn: str | bool = "auto"
    intermediate_size: int = 22016
    no_bias: bool = True
    tie_word_embeddings: bool = False
    use_cache_quantization: bool = False
    use_cache_kernel: bool = False
    softmax_in_fp32: bool = False


def _rope(told: Told) -> Told:
    rope = {"rope_type": "default", **(told.get("rope_scaling") or {})}
    return {"rope_parameters": {"rope_theta": told.get("rope_theta", 10000.0), **rope}}


def xverse(told: Told) -> Told:
    """A Llama's."""
    return {**shared(told), **_rope(told), "head_dim": told.get("head_dim")}


def teleflm(told: Told) -> Told:
    """A Granite's, which has the same scales in other places."""
    scales = told.get("use_mup", False)
    return {
        **shared(told),
        **_rope(told),
        "attention_multiplier": (told["hidden_size"] / told["num_attention_heads"]) ** -0.5,
        "embedding_multiplier": told["input_mult"] if scales else 1.0,
        "logits_scaling": told["mup_scale_factor"] / told["output_mult"] if scales else 1.0,
    }


def qwen(told: Told) -> Told:
    """A Qwen2's, whose MLPs are half as wide as is told."""
    return {
        **shared(told),
        **_rope(told),
        "num_key_value_heads": told["num_attention_heads"],
        "intermediate_size": told["intermediate_size"] // 2,
        "rms_norm_eps": told["layer_norm_epsilon"],
    }


_OF_QWEN = {
    "model.embed_tokens": "transformer.wte",
    "model.norm": "transformer.ln_f",
    "model.layers": "transformer.h",
    ".input_layernorm": ".ln_1",
    ".post_attention_layernorm": ".ln_2",
    ".self_attn.o_proj": ".attn.c_proj",
    ".self_attn.q_proj": ".attn.c_attn",
    ".mlp.gate_proj": ".mlp.w2",
    ".mlp.up_proj": ".mlp.w1",
    ".mlp.down_proj": ".mlp.c_proj",
}


def qwen_tensors(found: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in joined(found):
        yield renamed(name, _OF_QWEN), tensor

"""ChatGLM 2 and 3, and GLM-4 9B as first published: half of each head turned, pair by pair, one matrix of
queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import heads, model
from runtime.server.layer_config import AttentionConfig, RopeConfig
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(
    layers="transformer.encoder.layers",
    embedding="transformer.embedding.word_embeddings",
    norm="transformer.encoder.final_layernorm",
    attention="self_attention",
    packed_qkv="query_key_value",
    attention_out="dense",
    gate_up="dense_h_to_4h",
    down="dense_4h_to_h",
    head="transformer.output_layer",
    served=ServedNames(plain=("lm_head",)),
)
# srt/models/chatglm.py has other layers where these are otherwise.
_ONE_WAY: Mapping[str, Any] = {
    "rmsnorm": True,
    "post_layer_norm": True,
    "apply_residual_connection_post_layernorm": False,
    "add_bias_linear": False,
    "fp32_residual_connection": False,
    "interleaved_qkv": False,
    "tie_word_embeddings": False,
}
_BASE = 10000.0


def _chatglm(f: Fields) -> ModelConfig:
    f.always(_ONE_WAY)
    f.only("quantization_bit", 0)
    f.only("pre_seq_len")
    tokens = f.size("padded_vocab_size")
    f.only("vocab_size", tokens)
    layers = f.size(f.spelled("num_hidden_layers", "num_layers"))
    longest = f.size("seq_length")
    f.only("max_position_embeddings", longest)
    return model(
        f.beside({"vocab_size": tokens}),
        {"full": _attention(f, longest)},
        ["full"] * layers,
        ["dense"] * layers,
        rms_eps=f.number("layernorm_epsilon"),
        intermediate_size=f.size("ffn_hidden_size"),
        max_position=longest,
        activation="silu",
        names=_NAMES,
    )


def _attention(f: Fields, longest: int) -> AttentionConfig:
    count = f.size("num_attention_heads")
    width, groups = f.size("hidden_size") // count, f.size("multi_query_group_num")
    f.only("kv_channels", width)
    ratio = f.positive("rope_ratio", 1)
    if width % 4:
        f.cannot(f"heads are {width} wide: half of that are no pairs")
    base = _BASE * ratio
    told = {"rope_type": "default", "rope_theta": base}
    rope = RopeConfig(width // 2, base, longest, interleaved=True, parameters=told)
    kv_count = groups if f.flag("multi_query_attention") else count
    return heads(f, width=width, kv_count=kv_count, rope=rope, bias=f.flag("add_qkv_bias"))


FAMILIES = (
    Family(
        "chatglm",
        _chatglm,
        {
            **_ONE_WAY,
            "num_layers": 28,
            "padded_vocab_size": 65024,
            "hidden_size": 4096,
            "ffn_hidden_size": 13696,
            "kv_channels": 128,
            "num_attention_heads": 32,
            "seq_length": 2048,
            "layernorm_epsilon": 1e-5,
            "add_qkv_bias": False,
            "multi_query_attention": False,
            "multi_query_group_num": 1,
            "quantization_bit": 0,
        },
    ),
)

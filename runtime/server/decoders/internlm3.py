"""InternLM 3: a Llama whose config class is a file of its checkpoints."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(served=ServedNames())
_TOLD_APART = (
    "intermediate_size",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
)


def _internlm3(f: Fields) -> ModelConfig:
    """transformers calls some biases otherwise than the checkpoints' class, and SGLang reads all four."""
    for name in ("attention_bias", "qkv_bias", "bias", "mlp_bias"):
        f.only(name, False)
    for name in _TOLD_APART:
        if not f.tells(name):
            f.cannot(f"{name} is missing: transformers and the class of its checkpoints say otherwise")
    return model(f, {"full": heads(f)}, everywhere(f, "full"), everywhere(f, "dense"), names=_NAMES)


FAMILIES = (
    Family(
        "internlm3",
        _internlm3,
        {
            "intermediate_size": 10240,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-5,
        },
    ),
)
